"""What one record means for one row: passing, failing, worse than before, short of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from moeshapes.claim import Claim
from moeshapes.gate.policy import Policy
from moeshapes.gate.verdict import Bench, of_new_row, of_old_row
from moeshapes.statement import Statement
from moeshapes.use import Use
from report_samples import FASTER, SAME, SLOWER, record, speed
from small_repository import tuned_row

ROW = tuned_row(8)
USE = Use("tiny/tp2", "target", "a4w4", "silu")
CLAIM = Claim(ROW, USE)
BENCH = Bench(Policy(), date(2026, 11, 30), "main")
"""On the day on which the records of the samples were made."""
NAN: dict[str, Any] = {"bad_values": 3, "over_limit": "inf", "block_over_limit": "inf"}


def said(timed: Mapping[str, Any] | None = None, **count: object) -> Statement:
    return Statement(record(ROW, USE, timed, **count))


def with_(statement: Statement, part: str, **facts: object) -> Statement:
    return Statement({**statement.record, part: {**statement.record[part], **facts}})


def new(
    statement: Statement, before: Statement | None = None, replaces: bool | None = None, **policy: Any
) -> list[str]:
    bench = replace(BENCH, policy=Policy(**policy))
    findings = of_new_row(CLAIM, statement, before, bench, before is not None if replaces is None else replaces)
    return [f"{finding.rule.name}: {finding.message.partition(': ')[2]}" for finding in findings]


def old(statement: Statement, before: Statement | None, **policy: Any) -> list[str]:
    bench = replace(BENCH, policy=Policy(**policy))
    return [finding.rule.name for finding in of_old_row(CLAIM, statement, before, bench)]


def test_a_record_that_passed_proves_by_default() -> None:
    assert new(said()) == []
    assert new(said(speed(FASTER, replaced=SAME)), said()) == []


def test_a_finding_names_the_row_its_use_and_the_command() -> None:
    (finding,) = of_new_row(CLAIM, said(**NAN), None, BENCH, replaces=False)
    assert finding.place == ROW.place
    assert finding.message.startswith("under `tiny/tp2#target`: failed on MI355X: 3 NaN or Inf at 8 tokens; ")
    assert "Run `moeshapes verify --changed main` on a gfx950/256 GPU" in finding.next_step


def test_nan_is_said_to_be_new_where_it_is() -> None:
    assert new(said(**NAN), said())[0].endswith("; in main it was proven")
    assert not new(said(**NAN), said(**NAN))[0].endswith("it was proven")


@pytest.mark.parametrize(
    ("share", "margin", "found"), [(0.65, 0.25, False), (0.67, 0.25, True), (0.67, 0.5, False), (0.42, 0.0, True)]
)
def test_accuracy_may_not_get_worse_by_more_than_the_margin(share: float, margin: float, found: bool) -> None:
    worse = new(said(over_limit=share), said(), accuracy_margin=margin)
    assert [each.partition(":")[0] for each in worse] == (["less-accurate"] if found else [])
    assert new(said(block_over_limit=share), said(), accuracy_margin=margin) == [
        each.replace("over_limit", "block_over_limit") for each in worse
    ]


@pytest.mark.parametrize("change", [{"protocol": 2}, {"compared_with": "unmodelled"}])
def test_shares_of_other_limits_are_not_compared(change: dict[str, object]) -> None:
    assert new(with_(said(over_limit=0.99), "numerics", **change), said()) == []


def test_determinism_counts_where_it_was() -> None:
    shaky = said(deterministic=False)
    assert new(shaky) == []
    assert new(shaky, shaky) == []
    assert new(said(), shaky) == []
    assert new(shaky, said()) == ["determinism-lost: not deterministic at 8 tokens, in main it was"]


def test_a_failed_base_is_no_yardstick() -> None:
    assert new(said(over_limit=0.9, deterministic=False), said(**NAN)) == []


@pytest.mark.parametrize(
    ("timed", "arm"),
    [
        (speed(SLOWER), "what runs without it"),
        (speed(SLOWER, replaced=FASTER), "what runs without it"),
        (speed(FASTER, replaced=SLOWER), "the row that it replaces"),
    ],
)
def test_slower_rows(timed: Mapping[str, Any], arm: str) -> None:
    (found,) = new(said(timed), said())
    assert found.startswith("slower-row: 7.1 % (6.8 to 7.3 %) slower than ")
    assert found.endswith(arm)
    assert new(said(timed), said(), slower_blocks=False) == [found.replace("slower-row", "slower-row-allowed")]
    assert new(said(timed), said(), speed_protocol=2) == []
    assert old(said(timed), said()) == ["slower-row-allowed"]


def test_what_is_unresolved_is_not_slower() -> None:
    timed = speed(SLOWER)
    timed["comparisons"][0]["verdict"] = "unresolved"
    assert new(said(timed)) == []


@pytest.mark.parametrize(
    ("statement", "policy", "shortcoming"),
    [
        (said(), {"numerics_protocol": 2}, "judged by protocol 1, the policy asks for 2"),
        (said(), {"max_over_limit": 0.4}, "the worst token is at 0.41 of the limit, the policy allows 0.4"),
        (
            said(deterministic=False),
            {"determinism_required": True},
            "not deterministic at 8 tokens, which the policy requires",
        ),
        (
            said(),
            {"aiter_commits": ("0123456789", "abcdef0123")},
            "made with AITER e4048607a5, the policy names 0123456789, abcdef0123",
        ),
        (said(), {"speed_required": True}, "not timed against what runs without it, which the policy requires"),
        (
            said(speed(FASTER)),
            {"speed_required": True, "speed_protocol": 2},
            "not timed against what runs without it, which the policy requires",
        ),
        (
            Statement({**said().record, "time": "2026-11-20T00:00:00+00:00"}),
            {"max_age_days": 9},
            "10 days old, the policy allows 9",
        ),
        (
            Statement({**said().record, "time": "2027-11-30T00:00:00+00:00"}),
            {"max_age_days": 9},
            "made 365 days from now",
        ),
    ],
)
def test_records_that_the_policy_does_not_take(statement: Statement, policy: dict[str, Any], shortcoming: str) -> None:
    assert new(statement, **policy) == [f"below-policy: {shortcoming}"]
    assert new(statement) == []
    assert old(statement, None, **policy) == []


@pytest.mark.parametrize(
    ("statement", "policy"),
    [
        (said(), {"numerics_protocol": 1, "max_over_limit": 0.41, "determinism_required": True, "max_age_days": 1}),
        (said(), {"aiter_commits": ("e4048607a5ffff", "abcdef0123")}),
        (said(speed(FASTER)), {"speed_required": True}),
        (with_(said(), "versions", aiter=""), {"aiter_commits": ("abcdef0123",)}),
    ],
)
def test_records_that_the_policy_takes(statement: Statement, policy: dict[str, Any]) -> None:
    assert new(statement, **policy) == []


def test_a_row_that_replaces_another_is_timed_against_it() -> None:
    (found,) = new(said(speed(FASTER)), replaces=True, speed_required=True)
    assert found == "below-policy: not timed against the row that it replaces, which the policy requires"
    assert new(said(speed(FASTER, replaced=FASTER)), replaces=True, speed_required=True) == []


def test_a_policy_that_is_missed_says_to_verify_afresh() -> None:
    (finding,) = of_new_row(CLAIM, said(), None, replace(BENCH, policy=Policy(numerics_protocol=2)), replaces=False)
    assert "moeshapes verify --fresh --changed main" in finding.next_step


@pytest.mark.parametrize(
    ("statement", "before", "found"),
    [
        (said(), None, []),
        (said(), said(**NAN), []),
        (said(**NAN), None, ["old-row-fails"]),
        (said(**NAN), said(), ["failed-row"]),
        (said(**NAN), said(**NAN), []),
        (said(over_limit=0.9), said(), ["less-accurate"]),
        (said(deterministic=False), said(), ["determinism-lost"]),
        (said(deterministic=False), None, []),
    ],
)
def test_a_row_that_was_there(statement: Statement, before: Statement | None, found: list[str]) -> None:
    assert old(statement, before) == found


def test_little_is_quoted_of_a_huge_record() -> None:
    statement = said(**NAN)
    flooded = Statement({**statement.record, "reasons": ["x" * 100_000] * 1000})
    (found,) = new(flooded)
    assert len(found) < 600
