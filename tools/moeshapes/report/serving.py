"""Serving, arm against arm: throughput a GPU and time a token, by shape, over interleaved rounds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from statistics import geometric_mean

from moeshapes.findings import Finding
from moeshapes.report.serving_result import Result
from moeshapes.report.serving_rules import FEW_ROUNDS, NOT_INTERLEAVED, ROUNDS_DIFFER, SETTINGS_DIFFER
from moeshapes.report.speed import Change

CONFIDENCE = 0.95
_LARGEST_LOG = 700.0
"""Of what is still a float: an interval of two rounds that have nothing in common is as wide as can be said."""
SAME_LENGTH = 0.02
"""Mean lengths of one shape: a drawn data set's differ from seed to seed."""


@dataclass(frozen=True)
class Arm:
    """One way of serving, and its results in the order in which they ran."""

    name: str
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Pair:
    """The rounds of one shape, those of the first arm beside those of the second."""

    rounds: tuple[tuple[Result, Result], ...]

    @property
    def shape(self) -> str:
        return self.rounds[0][0].shape

    @property
    def lengths(self) -> tuple[int, int, int | None]:
        first = self.rounds[0][0]
        return first.input_len, first.output_len, first.concurrency

    @property
    def throughputs(self) -> tuple[float, float]:
        """Of each arm, the geometric mean over rounds, tokens a second."""
        one, other = zip(*self.rounds, strict=True)
        return geometric_mean(a.throughput for a in one), geometric_mean(b.throughput for b in other)

    @property
    def tpots_ms(self) -> tuple[float, float]:
        one, other = zip(*self.rounds, strict=True)
        return geometric_mean(a.tpot_ms for a in one), geometric_mean(b.tpot_ms for b in other)

    @property
    def throughput_change(self) -> Change:
        return change_over([b.throughput / a.throughput for a, b in self.rounds])

    @property
    def tpot_change(self) -> Change:
        return change_over([b.tpot_ms / a.tpot_ms for a, b in self.rounds])


def change_over(ratios: Sequence[float]) -> Change:
    """The mean of the rounds' log ratios with Student's 95 % interval; from 0 to infinity for a single round."""
    from scipy.stats import t  # type: ignore[import-untyped]

    logs = [log(ratio) for ratio in ratios]
    mean, freedom = sum(logs) / len(logs), len(logs) - 1
    if not freedom:
        return Change.of_ratio(exp(mean), 0.0, inf)
    deviation = sqrt(sum((each - mean) ** 2 for each in logs) / freedom)
    half = float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * deviation / sqrt(len(logs))
    return Change.of_ratio(exp(mean), exp(mean - half), exp(min(mean + half, _LARGEST_LOG)))


def gpus_of(pairs: Sequence[Pair]) -> int | None:
    """GPUs of a server as the results tell; 1 where there are none, None where they do not tell or disagree."""
    told = {result.gpus for pair in pairs for both in pair.rounds for result in both}
    return told.pop() if len(told) == 1 else None if told else 1


def pair_up(one: Arm, other: Arm, may_differ: Collection[str] = ()) -> tuple[list[Pair], list[Finding]]:
    """The shapes that both arms were run at, and what keeps others from being compared."""
    pairs: list[Pair] = []
    findings = list(_not_interleaved(one, other))
    shapes, others = _by_shape(one.results), _by_shape(other.results)
    for first in shapes:
        mine = shapes[first]
        theirs = next((others[same] for same in others if _is_same_shape(first, same)), [])
        wrong = [*_missing(one, other, mine, theirs), *_differences([*mine, *theirs], may_differ)]
        findings += wrong
        if not wrong:
            pairs.append(Pair(tuple(zip(mine, theirs, strict=True))))
            findings += _too_few(pairs[-1])
    for first, theirs in others.items():
        if not any(_is_same_shape(first, same) for same in shapes):
            findings += _missing(other, one, theirs, [])
    return pairs, findings


_Shape = tuple[int, int, int | None]


def _by_shape(results: Sequence[Result]) -> Mapping[_Shape, list[Result]]:
    found: dict[_Shape, list[Result]] = {}
    for result in results:
        own = (result.input_len, result.output_len, result.concurrency)
        found.setdefault(next((shape for shape in found if _is_same_shape(shape, own)), own), []).append(result)
    return found


def _is_same_shape(one: _Shape, other: _Shape) -> bool:
    near = all(abs(a - b) <= SAME_LENGTH * max(a, b) for a, b in zip(one[:2], other[:2], strict=True))
    return near and one[2] == other[2]


def _missing(one: Arm, other: Arm, mine: Sequence[Result], theirs: Sequence[Result]) -> Iterator[Finding]:
    if len(mine) != len(theirs):
        counts = f"{_rounds(mine)} in `{one.name}`, {_rounds(theirs)} in `{other.name}`"
        yield Finding(ROUNDS_DIFFER, mine[0].place, f"{mine[0].shape}: {counts}")


def _rounds(results: Sequence[Result]) -> str:
    return "1 round" if len(results) == 1 else f"{len(results)} rounds"


def _differences(results: Sequence[Result], may_differ: Collection[str]) -> Iterator[Finding]:
    """What any round has otherwise than the first, a finding a setting."""
    first = results[0]
    for name in sorted({name for result in results for name in result.settings} - {*may_differ}):
        odd = next((result for result in results if result.settings.get(name) != first.settings.get(name)), None)
        if odd:
            values = (result.settings.get(name, "not stated") for result in (odd, first))
            here, there = (value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…" for value in values)
            message = f"{first.shape}: `{name}` is {here}, but {there} in {first.place}"
            yield Finding(SETTINGS_DIFFER, odd.place, message)


_SHOWN = 80


def _too_few(pair: Pair) -> Iterator[Finding]:
    if len(pair.rounds) == 1:
        yield Finding(FEW_ROUNDS, pair.rounds[0][0].place, f"{pair.shape}: one round an arm")


def _not_interleaved(one: Arm, other: Arm) -> Iterator[Finding]:
    """Where results tell when they ran: vLLM's do."""
    for first, second in ((one, other), (other, one)):
        before, after = ([result.date for result in arm.results] for arm in (first, second))
        if min(len(before), len(after)) > 1 and all([*before, *after]) and max(before) < min(after):
            message = f"every round of `{first.name}` ran before those of `{second.name}`"
            yield Finding(NOT_INTERLEAVED, second.results[0].place, message)
