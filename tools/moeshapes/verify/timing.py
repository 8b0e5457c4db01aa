"""Which way to compute the same is faster: a verdict with an interval, from graphs that are captured again and again.

Where buffers happen to land moves a kernel's time by more than a percent, and no number of replays averages that out.
So each capture gets its memory elsewhere, arms take turns replay by replay, the log ratio of a capture is one
observation, and the spread between captures gives the interval. No torch here: a lab does the capturing.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

TIMING_PROTOCOL = 1
FASTER, SLOWER, SAME, UNRESOLVED = "faster", "slower", "same", "unresolved"
MARGIN = 0.005
"""A ratio is only told from 1 where its whole interval is farther off than this; stopping as soon as the interval
excludes 1 would call one in ten identical arms faster or slower."""
CAPTURES_AT_LEAST = 6
_MOST_CAPTURES = 64
_PATIENCE = 3
"""So many budgets are waited for a clock that holds."""
_REPLAYS = (4, 12)
_REPLAYING_S = 0.04
"""Replays of a capture: so many as fit in this time, within the bounds above."""
_OUTERMOST = 8
"""One replay in so many is left out at either end, so that an interrupted one does not count."""
_CLOCK_FELL = 0.9
"""A capture after which the clock is below this share of the usual one is dropped."""
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t by degrees of freedom from 1, two-sided 95 %: a worker needs no scipy. More count as the last."""


class Graph(Protocol):
    """A captured arm."""

    def replay_us(self) -> float:
        """Replays it and gives the time that it took on the device, in microseconds."""


class Lab(Protocol):
    """What captures and times."""

    def capture(self, arm: int) -> Graph:
        """The arm of that number, captured with its memory in a new place."""

    def clock_mhz(self) -> float:
        """The clock that kernels run at, now."""

    def release(self) -> None:
        """Frees the graphs that were captured."""


@dataclass(frozen=True)
class Pass:
    """One process's observations of one arm against another. Ratios are its time over the other's; µs are a call's."""

    verdict: str
    ratio: float
    low: float
    high: float
    ratios: list[float]
    us: float
    other_us: float
    dropped: int
    clock_mhz: tuple[float, float]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"clock_mhz": list(self.clock_mhz)}


@dataclass(frozen=True)
class _Capture:
    """Microseconds of each arm's graph, and the clock as its replays left it."""

    us: tuple[float, ...]
    clock_mhz: float


def compare(
    lab: Lab, others: int, calls: int, budget_s: float, now: Callable[[], float] = time.perf_counter, noise: bool = True
) -> list[Pass]:
    """Arm 0 against each of the arms 1 to `others`, and for `noise` against itself, captured once more, at the end.

    Captures are added until each comparison with another arm is resolved or the budget, in seconds, is spent: at least
    CAPTURES_AT_LEAST. `calls` is how many calls a graph holds.
    """
    began, captures = now(), list[_Capture]()
    arms = [0, *range(1, others + 1), *([0] if noise else [])]
    while len(captures) < _MOST_CAPTURES:
        captures.append(_captured(lab, arms, reverse=len(captures) % 2 == 1))
        spent = now() - began
        enough = len(_steady(captures)) if spent < _PATIENCE * budget_s else len(captures)
        is_spent = enough >= CAPTURES_AT_LEAST and spent + spent / len(captures) > budget_s
        if is_spent or all(_verdict(captures, other) != UNRESOLVED for other in range(1, others + 1)):
            break
    seconds = now() - began
    return [_pass(captures, index, calls, seconds) for index in range(1, len(arms))]


def _captured(lab: Lab, arms: Sequence[int], reverse: bool) -> _Capture:
    """All arms captured, and replayed in turn; which goes first alternates, between captures and between replays."""
    order = list(range(len(arms)))
    if reverse:
        order.reverse()
    graphs = {index: lab.capture(arms[index]) for index in order}
    longest = max(graphs[index].replay_us() for index in order)
    least, most = _REPLAYS
    replays = max(least, min(most, int(_REPLAYING_S * 1e6 / (longest * len(arms)))))
    times: list[list[float]] = [[] for _ in arms]
    for replay in range(replays):
        for index in order if replay % 2 == 0 else reversed(order):
            times[index].append(graphs[index].replay_us())
    clock = lab.clock_mhz()
    lab.release()
    return _Capture(tuple(_middle(each) for each in times), clock)


def _middle(times: Sequence[float]) -> float:
    """The mean without the outermost."""
    cut = -(-len(times) // _OUTERMOST) if len(times) > 2 else 0
    return statistics.fmean(sorted(times)[cut : len(times) - cut])


def _steady(captures: Sequence[_Capture]) -> list[_Capture]:
    """Those during which the clock did not fall."""
    usual = statistics.median(capture.clock_mhz for capture in captures)
    return [capture for capture in captures if capture.clock_mhz >= _CLOCK_FELL * usual]


def _verdict(captures: Sequence[_Capture], other: int) -> str:
    steady = _steady(captures)
    return UNRESOLVED if len(steady) < CAPTURES_AT_LEAST else interval(_logs(steady, other))[0]


def _logs(captures: Sequence[_Capture], other: int) -> list[float]:
    return [math.log(capture.us[0] / capture.us[other]) for capture in captures]


def interval(logs: Sequence[float]) -> tuple[str, float, float, float]:
    """The verdict on log ratios, one a capture, and their mean with its 95 % interval."""
    mean = statistics.fmean(logs)
    reach = _t_975(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = mean - reach, mean + reach
    slower, faster = math.log1p(MARGIN), math.log1p(-MARGIN)
    if low > slower:
        return SLOWER, mean, low, high
    if high < faster:
        return FASTER, mean, low, high
    return (SAME if faster < low and high < slower else UNRESOLVED), mean, low, high


def _t_975(freedom: int) -> float:
    return _T_975[min(freedom, len(_T_975)) - 1]


def _pass(captures: Sequence[_Capture], other: int, calls: int, seconds: float) -> Pass:
    """Of the captures that count: all of them, and no verdict, where the clock held during too few."""
    steady = _steady(captures)
    counted = steady if len(steady) >= CAPTURES_AT_LEAST else list(captures)
    logs = _logs(counted, other)
    _, mean, low, high = interval(logs)
    return Pass(
        verdict=_verdict(captures, other),
        ratio=math.exp(mean),
        low=math.exp(low),
        high=math.exp(high),
        ratios=[math.exp(log) for log in logs],
        us=statistics.median(capture.us[0] for capture in counted) / calls,
        other_us=statistics.median(capture.us[other] for capture in counted) / calls,
        dropped=len(captures) - len(steady),
        clock_mhz=(min(c.clock_mhz for c in captures), max(c.clock_mhz for c in captures)),
        seconds=seconds,
    )


def agreed(verdicts: Sequence[str]) -> str:
    """The verdict of passes in several processes: theirs where they agree."""
    return verdicts[0] if len(set(verdicts)) == 1 else UNRESOLVED


def overall(verdicts: Sequence[str]) -> str:
    """The verdict of several comparisons: the least favourable."""
    return max(verdicts, key=(FASTER, SAME, UNRESOLVED, SLOWER).index)


def joined(timings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a record says of speed, from what each process timed (speed.time_row)."""
    first = timings[0]
    comparisons = []
    for index, compared in enumerate(first["comparisons"]):
        passes = [timing["comparisons"][index]["pass"] for timing in timings]
        verdict = agreed([found["verdict"] for found in passes])
        comparisons.append(
            {"against": compared["against"], "launched": compared["launched"], "verdict": verdict, "passes": passes}
        )
    return {
        "protocol": TIMING_PROTOCOL,
        "tokens": first["tokens"],
        "calls": first["calls"],
        "reuse_bytes": first["reuse_bytes"],
        "verdict": overall([compared["verdict"] for compared in comparisons]),
        "comparisons": comparisons,
        "noise": [timing["noise"] for timing in timings],
    }
