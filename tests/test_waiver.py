from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from moeshapes.findings import Finding, Place, render
from moeshapes.lint import lint_files
from moeshapes.rule import RULES
from moeshapes.rules import lint_rows
from moeshapes.table import read_tuned_rows
from moeshapes.waiver import WAIVERS, Waiver, read_waivers, waive
from table_text import line, table

TODAY = date(2026, 6, 1)


def read(tmp_path: Path, text: str) -> tuple[list[Waiver], list[Finding]]:
    (tmp_path / WAIVERS).write_text(text, encoding="utf-8")
    return read_waivers(tmp_path, TODAY)


def entry(**facts: str) -> str:
    sound = {"rule": "MOE163", "rows": '"token=512"', "reason": "known", "until": "2026-12-31"}
    return (
        "waivers:\n  - " + "\n    ".join(f"{key}: {value}" for key, value in {**sound, **facts}.items() if value) + "\n"
    )


def test_no_file_means_no_waivers(tmp_path: Path) -> None:
    assert read_waivers(tmp_path, TODAY) == ([], [])


def test_a_waiver_covers_its_rule_on_its_rows(tmp_path: Path) -> None:
    waivers, faults = read(tmp_path, entry())
    assert faults == []
    rows = read_tuned_rows(table(line(err1="19.4%", token="512"), line(err1="19.4%", token="1024")))
    found = lint_rows(rows)
    waived = waive(found, rows, waivers)
    assert (waived.count, waived.unused) == (1, [])
    assert [finding for finding in found if finding not in waived.findings] == [
        finding for finding in found if finding.rule.id == "MOE163" and finding.place.line == 2
    ]


def test_a_waiver_of_a_file_covers_faults_of_its_text() -> None:
    fault = Finding(RULES["MOE112"], Place("generated/aiter/configs/model_configs/a_tuned_fmoe.csv", 7), "shifted")
    for file in ("a_tuned_fmoe.csv", fault.place.file):
        waiver = Waiver("MOE112", file, (), "known", TODAY, Place(WAIVERS, 2))
        assert waive([fault], [], [waiver]).count == 1
    for waiver in (
        Waiver("MOE111", "a_tuned_fmoe.csv", (), "known", TODAY, Place(WAIVERS, 2)),
        Waiver("MOE112", "b_tuned_fmoe.csv", (), "known", TODAY, Place(WAIVERS, 2)),
        Waiver("MOE112", "", (("token", "8"),), "known", TODAY, Place(WAIVERS, 2)),
    ):
        waived = waive([fault], [], [waiver])
        assert waived.findings == [fault]
        assert [finding.rule.name for finding in waived.unused] == ["unused-waiver"]


@pytest.mark.parametrize(
    ("facts", "place", "message"),
    [
        ({"until": "2026-05-31"}, "5:12", "MOE140 the waiver of MOE163 ended on 2026-05-31: known"),
        ({"until": "2026-02-30"}, "5:12", "MOE142 there is no day 2026-02-30"),
        ({"until": "soon"}, "5:12", "MOE013 `until` is the text `soon`: it must be a date such as 2026-12-31"),
        ({"rule": "MOE999"}, "2:11", "MOE142 there is no rule MOE999"),
        ({"rule": "high"}, "2:11", "MOE013 `rule` is the text `high`: it must be a rule's id such as MOE163"),
        ({"rows": "token"}, "3:11", "MOE142 `rows`: `token` is neither a line number nor `column=value`"),
        ({"rows": "tokens=8"}, "3:11", "MOE142 `rows`: there is no column `tokens`: did you mean `token`?"),
        ({"rows": ""}, "2:11", "MOE142 a waiver needs `file` or `rows`: it would cover every table"),
        ({"reason": ""}, "2:5", "MOE011 `reason` is missing in item 1 of `waivers`"),
    ],
)
def test_what_is_wrong_with_a_waiver(tmp_path: Path, facts: dict[str, str], place: str, message: str) -> None:
    waivers, faults = read(tmp_path, entry(**facts))
    assert waivers == []
    assert render(faults, "text").split("\n")[0] == f"{WAIVERS}:{place}: error {message}"


def test_the_last_day_counts(tmp_path: Path) -> None:
    assert read(tmp_path, entry(until=str(TODAY)))[1] == []


def test_a_link_is_not_read(tmp_path: Path) -> None:
    (tmp_path / WAIVERS).symlink_to("/dev/zero")
    waivers, (finding,) = read_waivers(tmp_path, TODAY)
    assert waivers == []
    assert finding.rule.name == "unreadable-document"


def test_waivers_for_the_gate_are_not_unused_in_lint(tmp_path: Path) -> None:
    for folder in ("models", "shapes"):
        (tmp_path / folder).mkdir()
    for rule, unused in (("MOE163", ["unused-waiver"]), ("MOE501", [])):
        (tmp_path / WAIVERS).write_text(entry(rule=rule), encoding="utf-8")
        assert [finding.rule.name for finding in lint_files([], tmp_path, today=TODAY).findings] == unused
