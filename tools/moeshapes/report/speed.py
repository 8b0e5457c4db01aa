"""The `speed` part of a record, read: passes, comparisons, and the change that they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

BASELINE, REPLACED = "baseline", "replaced"


@dataclass(frozen=True)
class Change:
    """A relative change and its 95 % interval, as shares: -0.1 is a tenth less."""

    centre: float
    low: float
    high: float

    @classmethod
    def of_ratio(cls, ratio: float, low: float, high: float) -> Change:
        return cls(ratio - 1, low - 1, high - 1)

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Pass:
    """One process's captures: the row's time over the other arm's, and both times in microseconds a call."""

    verdict: str
    ratio: float
    change: Change
    us: float
    other_us: float
    captures: int
    dropped: int
    clock_mhz: tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """The row against another arm, a pass a process."""

    against: str
    launched: tuple[str, ...]
    verdict: str
    passes: tuple[Pass, ...]

    @property
    def change(self) -> Change:
        """The geometric mean of the passes' ratios, and the hull of their intervals: no pass is argued away."""
        changes = [one.change for one in self.passes]
        mean = prod(one.ratio ** (1 / len(changes)) for one in self.passes)
        return Change.of_ratio(mean, *(1 + end for end in _hull(changes)))

    @property
    def us(self) -> float:
        return sum(one.us for one in self.passes) / len(self.passes)

    @property
    def other_us(self) -> float:
        return sum(one.other_us for one in self.passes) / len(self.passes)


@dataclass(frozen=True)
class Speed:
    """How long a row takes beside what else could run. `reuse_bytes` of weights lie between two reads of the same."""

    protocol: int
    tokens: int
    calls: int
    reuse_bytes: int
    verdict: str
    comparisons: tuple[Comparison, ...]
    noise: tuple[Pass, ...]

    def against(self, other: str) -> Comparison | None:
        return next((comparison for comparison in self.comparisons if comparison.against == other), None)

    @property
    def noise_floor(self) -> float:
        """The largest change that identical arms may have had, as a share: the far end of an interval."""
        return max(abs(end) for one in self.noise for end in (one.change.low, one.change.high))


def speed_of(record: Mapping[str, Any]) -> Speed | None:
    """What a record says of speed, None where it was not timed."""
    facts = record["speed"]
    if facts is None:
        return None
    comparisons = tuple(_comparison(each) for each in facts["comparisons"])
    noise = tuple(_pass(each) for each in facts["noise"])
    numbers = (facts["protocol"], facts["tokens"], facts["calls"], facts["reuse_bytes"])
    return Speed(*numbers, facts["verdict"], comparisons, noise)


def _comparison(facts: Mapping[str, Any]) -> Comparison:
    passes = tuple(_pass(each) for each in facts["passes"])
    return Comparison(facts["against"], tuple(facts["launched"]), facts["verdict"], passes)


def _pass(facts: Mapping[str, Any]) -> Pass:
    ratio, (low, high) = facts["ratio"], facts["clock_mhz"]
    change = Change.of_ratio(ratio, facts["low"], facts["high"])
    times = facts["us"], facts["other_us"]
    return Pass(facts["verdict"], ratio, change, *times, len(facts["ratios"]), facts["dropped"], (low, high))


def _hull(changes: Sequence[Change]) -> tuple[float, float]:
    return min(change.low for change in changes), max(change.high for change in changes)
