from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.verify.timing import (
    CAPTURES_AT_LEAST,
    FASTER,
    MARGIN,
    SAME,
    SLOWER,
    UNRESOLVED,
    agreed,
    compare,
    interval,
    joined,
    overall,
)


@dataclass
class SimulatedLab:
    """Graphs of arms that take `us`, moved by each capture and, less, by each replay. `clocks` come in turn."""

    us: tuple[float, ...]
    capture_sd: float
    replay_sd: float = 0.002
    seed: int = 1
    clocks: list[float] = field(default_factory=list)
    captured: list[int] = field(default_factory=list)
    held: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def capture(self, arm: int) -> SimulatedGraph:
        self.captured.append(arm)
        self.held += 1
        return SimulatedGraph(self, self.us[arm] * math.exp(self.random.gauss(0, self.capture_sd)))

    def clock_mhz(self) -> float:
        return self.clocks.pop(0) if self.clocks else 1980.0

    def release(self) -> None:
        self.held = 0


@dataclass
class SimulatedGraph:
    lab: SimulatedLab
    us: float

    def replay_us(self) -> float:
        return self.us * math.exp(self.lab.random.gauss(0, self.lab.replay_sd))


def passes(lab: SimulatedLab, budget_s: float = 30.0) -> list[str]:
    ticks = iter(range(10**6))
    return [found.verdict for found in compare(lab, len(lab.us) - 1, 10, budget_s, now=lambda: float(next(ticks)))]


@pytest.mark.parametrize("capture_sd", [0.002, 0.005])
def test_identical_arms_are_hardly_ever_told_apart_and_mostly_called_the_same(capture_sd: float) -> None:
    verdicts = [passes(SimulatedLab((200.0, 200.0), capture_sd, seed=seed), budget_s=300)[0] for seed in range(300)]
    assert verdicts.count(SAME) / len(verdicts) >= 0.9
    assert (verdicts.count(FASTER) + verdicts.count(SLOWER)) / len(verdicts) <= 0.01


def test_identical_arms_that_move_a_lot_are_unresolved_rather_than_told_apart() -> None:
    verdicts = [passes(SimulatedLab((200.0, 200.0), 0.01, seed=seed), budget_s=300)[0] for seed in range(300)]
    assert (verdicts.count(FASTER) + verdicts.count(SLOWER)) / len(verdicts) <= 0.03


@pytest.mark.parametrize(("change", "expected"), [(0.015, SLOWER), (-0.015, FASTER), (0.3, SLOWER)])
def test_a_planted_change_is_found(change: float, expected: str) -> None:
    verdicts = [passes(SimulatedLab((200 * (1 + change), 200.0), 0.003, seed=seed))[0] for seed in range(100)]
    assert verdicts.count(expected) >= 99


def test_a_change_within_the_margin_is_none() -> None:
    assert passes(SimulatedLab((200 * (1 + MARGIN / 4), 200.0), 0.0005))[0] == SAME


def test_what_the_budget_does_not_resolve_is_unresolved() -> None:
    lab = SimulatedLab((200.0, 200.0), capture_sd=0.05)
    [found, _] = compare(lab, 1, 10, budget_s=0.0)
    assert found.verdict == UNRESOLVED
    assert len(found.ratios) == CAPTURES_AT_LEAST


def test_each_arm_is_compared_and_the_first_with_itself() -> None:
    lab = SimulatedLab((100.0, 110.0, 90.0), 0.001)
    faster, slower, noise = compare(lab, 2, 10, budget_s=30)
    assert (faster.verdict, slower.verdict, noise.verdict) == (FASTER, SLOWER, SAME)
    assert (faster.us, faster.other_us) == pytest.approx((10, 11), rel=0.01)
    assert lab.captured.count(0) == 2 * lab.captured.count(1)
    assert lab.held == 0


def test_which_arm_is_captured_first_alternates() -> None:
    lab = SimulatedLab((100.0, 150.0), 0.001)
    compare(lab, 1, 10, budget_s=30, noise=False)
    assert lab.captured[:4] == [0, 1, 1, 0]


def test_captures_during_which_the_clock_fell_are_dropped_and_counted() -> None:
    clocks = [1980.0, 1975.0, 1500.0]
    [found, _] = compare(SimulatedLab((100.0, 100.0), 0.0005, clocks=clocks), 1, 10, budget_s=30)
    assert found.dropped == 1
    assert found.clock_mhz == (1500.0, 1980.0)
    assert found.verdict == SAME
    assert len(found.ratios) >= CAPTURES_AT_LEAST


def test_too_few_captures_of_a_steady_clock_give_no_verdict() -> None:
    clocks = [2000.0, 1000.0, 1000.0, 1000.0, 1980.0, 1990.0, 1500.0, 2000.0]
    [found, _] = compare(SimulatedLab((100.0, 120.0), 0.0005, clocks=clocks), 1, 10, budget_s=0.0)
    assert found.dropped == 3
    assert found.verdict == UNRESOLVED
    assert len(found.ratios) == CAPTURES_AT_LEAST


@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=40))
def test_the_interval_is_that_of_students_t(logs: list[float]) -> None:
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    _, mean, low, high = interval(logs)
    freedom = len(logs) - 1
    reach = stats.t.ppf(0.975, freedom) * statistics.stdev(logs) / math.sqrt(len(logs))
    exact = freedom <= 15
    assert high - mean == pytest.approx(reach, rel=1e-3 if exact else 0.05, abs=1e-12)
    assert mean - low == pytest.approx(high - mean, abs=1e-12)


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [([FASTER], FASTER), ([SAME, SAME], SAME), ([FASTER, SAME], UNRESOLVED), ([FASTER, SLOWER], UNRESOLVED)],
)
def test_processes_that_disagree_resolve_nothing(verdicts: list[str], together: str) -> None:
    assert agreed(verdicts) == together


def test_the_least_favourable_comparison_decides() -> None:
    assert overall([FASTER, SLOWER, SAME]) == SLOWER
    assert overall([FASTER, UNRESOLVED, SAME]) == UNRESOLVED
    assert overall([FASTER, SAME]) == SAME
    assert overall([FASTER]) == FASTER


def test_two_processes_timings_become_one_part_of_a_record() -> None:
    found = [found.as_json() for found in compare(SimulatedLab((100.0, 120.0), 0.001), 1, 10, budget_s=30)]
    again = [found.as_json() for found in compare(SimulatedLab((100.0, 101.0), 0.0001), 1, 10, budget_s=30)]
    timings = [
        {
            "tokens": 8,
            "calls": 10,
            "reuse_bytes": 1,
            "comparisons": [{"against": "baseline", "launched": ["k"], "pass": one}],
            "noise": noise,
        }
        for one, noise in (found, again)
    ]
    speed = joined(timings)
    assert speed["verdict"] == speed["comparisons"][0]["verdict"] == FASTER
    assert [one["us"] for one in speed["comparisons"][0]["passes"]] == [found[0]["us"], again[0]["us"]]
    assert len(speed["noise"]) == 2
