"""Examples as data: each folder is a small repository with what is expected of it beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from moeshapes.findings import has_errors, render
from moeshapes.generate import derived_tables
from moeshapes.repository import load_declarations

EXAMPLES = Path(__file__).resolve().parent / "examples" / "yaml"
NEGATIVE = sorted((EXAMPLES / "negative").iterdir())
REMARKED = sorted((EXAMPLES / "remarked").iterdir())
POSITIVE = sorted((EXAMPLES / "positive").iterdir())


@pytest.mark.parametrize("example", NEGATIVE, ids=lambda path: path.name)
def test_each_fault_is_found_with_its_message(example: Path) -> None:
    _, findings = load_declarations(example)
    assert render(findings, "text") + "\n" == (example / "expected.txt").read_text(encoding="utf-8")
    assert has_errors(findings)


@pytest.mark.parametrize("example", REMARKED, ids=lambda path: path.name)
def test_what_is_only_remarked_on_gives_its_rows_all_the_same(example: Path) -> None:
    declarations, findings = load_declarations(example)
    assert render(findings, "text") + "\n" == (example / "expected.txt").read_text(encoding="utf-8")
    assert not has_errors(findings)
    assert declarations.rows


@pytest.mark.parametrize("example", POSITIVE, ids=lambda path: path.name)
def test_each_sound_example_gives_its_rows(example: Path) -> None:
    declarations, findings = load_declarations(example)
    assert render(findings, "text") == ""
    expected = {path.relative_to(example).as_posix(): path.read_bytes() for path in example.rglob("*.csv")}
    assert derived_tables(declarations) == expected


def test_every_rule_about_documents_has_an_example() -> None:
    from moeshapes.rule import RULES

    shown = "".join((example / "expected.txt").read_text(encoding="utf-8") for example in [*NEGATIVE, *REMARKED])
    documents = [rule.id for rule in RULES.values() if rule.id < "MOE100"]
    assert [rule for rule in documents if f" {rule} " not in shown] == []
