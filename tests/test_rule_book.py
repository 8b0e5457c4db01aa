from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from moeshapes.adopt import FULL_HEADER
from moeshapes.findings import Finding
from moeshapes.generate import generate
from moeshapes.lint import lint_files, tuned_files_in
from moeshapes.rule_book import PATH, Example, all_rules, read_book, render_rules
from moeshapes.rules import lint_rows
from moeshapes.table import parse_table, read_tuned_rows

BOOK = read_book()
WITH_ROWS = [rule for rule, entry in BOOK.entries.items() if entry.bad.rows]


def findings(example: Example) -> list[Finding]:
    """What lint says of a table with the example's rows."""
    lines = [",".join({**BOOK.row, **cells}[column] for column in FULL_HEADER) for cells in example.rows]
    table = parse_table("\n".join([",".join(FULL_HEADER), *lines, ""]).encode(), "a_tuned_fmoe.csv")
    return [*table.findings, *lint_rows(read_tuned_rows(table))]


def test_the_book_has_every_rule_and_no_other() -> None:
    assert list(BOOK.entries) == sorted(BOOK.entries)
    assert set(BOOK.entries) == set(all_rules())


def test_every_rule_of_the_package_is_known(root: Path) -> None:
    sources = (root / "tools" / "moeshapes").rglob("*.py")
    written = {rule for path in sources for rule in re.findall(r"Rule\(\s*\"(MOE\d{3})\"", path.read_text("utf-8"))}
    assert written == set(all_rules())


def test_the_row_that_examples_differ_from_is_clean() -> None:
    assert findings(Example(({},), "")) == []


@pytest.mark.parametrize("rule", WITH_ROWS)
def test_bad_examples_break_their_rule(rule: str) -> None:
    assert rule in {finding.rule.id for finding in findings(BOOK.entries[rule].bad)}


@pytest.mark.parametrize("rule", WITH_ROWS)
def test_good_examples_keep_their_rule(rule: str) -> None:
    assert BOOK.entries[rule].good.rows
    assert rule not in {finding.rule.id for finding in findings(BOOK.entries[rule].good)}


def test_rules_that_one_row_can_break_have_such_an_example() -> None:
    of_context = {"MOE307", "MOE321", "MOE322"}  # they need a shape file or the day of an AITER
    judged = {rule for rule in BOOK.entries if "MOE150" <= rule < "MOE177" or rule.startswith("MOE3")}
    assert judged - set(WITH_ROWS) == of_context


def test_the_counts_are_those_of_aiters_tables(aiter_configs: Path) -> None:
    """Where it fails it shows what `published` in tools/moeshapes/rules/book.yaml is to be."""
    result = lint_files(tuned_files_in(aiter_configs), None)
    counts = Counter(finding.rule.id for finding in result.findings)
    published = {rule: entry.published for rule, entry in BOOK.entries.items() if entry.published is not None}
    assert published == {rule: counts[rule] for rule in published}
    assert set(counts) <= set(published)
    assert all(entry.because for entry in BOOK.entries.values() if entry.published is not None)


def test_every_finding_in_aiters_tables_has_a_place_and_a_next_step(aiter_configs: Path) -> None:
    for finding in lint_files(tuned_files_in(aiter_configs), None).findings:
        assert finding.place.line > 1
        assert finding.next_step


def test_the_page_has_a_section_for_every_rule() -> None:
    page = render_rules().decode()
    for rule in all_rules().values():
        section = page.partition(f"\n## {rule.id} {rule.name}\n")[2].partition("\n## ")[0]
        for part in (rule.what, f"- why: {rule.why}", f"- fix: {rule.fix}", "- bad: ", "- good: "):
            assert part in section


def test_a_stale_page_is_found(root: Path, tmp_path: Path) -> None:
    for folder in ("models", "shapes"):
        (tmp_path / folder).mkdir()
    assert generate(tmp_path, check=False).written == [PATH]
    assert (tmp_path / PATH).read_bytes() == (root / PATH).read_bytes()
    (tmp_path / PATH).write_bytes(render_rules().replace(b"MOE163", b"MOE164"))
    (finding,) = generate(tmp_path, check=True).findings
    assert (finding.rule.name, finding.place.file) == ("stale-file", PATH)
