from __future__ import annotations

from pathlib import Path

import pytest

from moeshapes.baseline import new_findings, read_baseline, write_baseline
from moeshapes.findings import Finding
from moeshapes.rules import lint_rows
from moeshapes.table import Table, read_tuned_rows
from table_text import line, table

HIGH, OLD, NEW = (
    line(err1=err, token=token) for err, token in (("19.4%", "512"), ("20.1%", "1024"), ("35.8%", "2048"))
)


def judged(*lines: str) -> tuple[list[Finding], list[Table]]:
    found = table(*lines)
    return [*found.findings, *lint_rows(read_tuned_rows(found))], [found]


def known(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "baseline.json"
    write_baseline(path, *judged(*lines))
    return path


def new(baseline: Path, *lines: str) -> list[Finding]:
    counts, faults = read_baseline(baseline)
    assert faults == []
    return new_findings(*judged(*lines), counts)


def test_what_was_there_is_not_new(tmp_path: Path) -> None:
    assert new(known(tmp_path, HIGH, OLD), HIGH, OLD) == []


def test_lines_may_move(tmp_path: Path) -> None:
    baseline = known(tmp_path, HIGH, OLD)
    assert "MOE163" not in {finding.rule.id for finding in new(baseline, OLD, line(token="64"), HIGH)}


def test_a_new_row_and_a_changed_row_are_new(tmp_path: Path) -> None:
    baseline = known(tmp_path, HIGH, OLD)
    for changed in (NEW, HIGH.replace("19.4%", "19.5%")):
        found = [finding for finding in new(baseline, HIGH, OLD, changed) if finding.rule.id == "MOE163"]
        assert [finding.place.line for finding in found] == [4]


def test_one_more_of_a_kind_is_new(tmp_path: Path) -> None:
    baseline = known(tmp_path, HIGH)
    found = [finding for finding in new(baseline, HIGH, HIGH) if finding.rule.id == "MOE163"]
    assert len(found) == 1


def test_a_baseline_is_written_a_finding_a_line(tmp_path: Path) -> None:
    text = known(tmp_path, OLD, HIGH).read_text()
    assert text == known(tmp_path, HIGH, OLD).read_text()
    assert text.startswith('{"version": 1, "findings": [\n{"rule": "MOE')
    assert text.endswith("}\n]}\n")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "1:1", "not JSON: Expecting value"),
        ("<<<<<<< HEAD\n{}", "1:1", "not JSON: Expecting value"),
        ("[]", "", "not a baseline of version 1"),
        ('{"version": 2, "findings": []}', "", "not a baseline of version 1"),
        ('{"version": 1, "findings": [{"rule": 1}]}', "", "not a baseline of version 1"),
        ('{"version": 1, "findings": [3]}', "", "not a baseline of version 1"),
        ("[" * 100_000, "", "not a text file of JSON"),
        ('{"version": ' + "9" * 5000 + "}", "", "not a text file of JSON"),
    ],
)
def test_what_is_no_baseline(tmp_path: Path, text: str, place: str, message: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    counts, (finding,) = read_baseline(path)
    assert counts == {}
    assert finding.rule.id == "MOE143"
    assert str(finding.place) == f"{path}:{place}".rstrip(":")
    assert finding.message == message
