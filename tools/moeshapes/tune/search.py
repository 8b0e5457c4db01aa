"""The search within one bucket, in two steps: a sum of stages' candidates is tried, not their product.

Stage 1 is tried beside the default's stage 2, then stage 2 beside the best stage 1 of each block_m. What a pair takes
that was not tried itself follows from both: stages run one after another, and hardly change each other's time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from moeshapes.tune.candidates import Candidates, Pair
from moeshapes.tune.screening import Seen

WITHIN = 1.25
"""A block_m is tried further if its best pair takes at most so much of the best pair's time."""

ALIKE = 2
"""Candidates of a bucket with one kernel that are verified."""

_Ratios = Mapping[Pair, float]


@dataclass(frozen=True)
class Search:
    """`shipped` is the pair of the row that is there, None where there is none."""

    candidates: Sequence[Candidates]
    shipped: Pair | None = None

    def first_step(self) -> list[Pair]:
        pairs = [(first, each.plain_second) for each in self.candidates for first in each.firsts]
        return pairs + [pair for pair in (self.shipped,) if pair and pair not in pairs]

    def second_step(self, seen: Mapping[Pair, Seen]) -> list[Pair]:
        """The pairs to try, knowing how the first ones did."""
        ratios = _ratios(seen)
        best = {each.block_m: pair for each in self.candidates if (pair := _best_first(each, ratios))}
        least = min((ratios[pair] for pair in best.values()), default=0.0)
        return [
            (best[each.block_m][0], second)
            for each in self.candidates
            if each.block_m in best and ratios[best[each.block_m]] <= WITHIN * least
            for second in each.seconds
            if second != each.plain_second
        ]

    def ranked(self, seen: Mapping[Pair, Seen]) -> list[tuple[float, Pair]]:
        """Every pair of which both stages were seen, by its share of what runs without a row, as seen or estimated."""
        ratios = _ratios(seen)
        found = {pair: ratio for each in self.candidates for pair, ratio in _estimates(each, ratios)}
        found |= ratios
        return sorted((ratio, pair) for pair, ratio in found.items())


def _ratios(seen: Mapping[Pair, Seen]) -> _Ratios:
    return {pair: each.ratio for pair, each in seen.items() if not each.error}


def _best_first(candidates: Candidates, ratios: _Ratios) -> Pair | None:
    """The best of the first step."""
    pairs = [(first, candidates.plain_second) for first in candidates.firsts]
    return min((pair for pair in pairs if pair in ratios), key=ratios.__getitem__, default=None)


def _estimates(candidates: Candidates, ratios: _Ratios) -> list[tuple[Pair, float]]:
    best = _best_first(candidates, ratios)
    if best is None:
        return []
    seconds = [second for second in candidates.seconds if (best[0], second) in ratios]
    firsts = [first for first in candidates.firsts if (first, candidates.plain_second) in ratios]
    return [
        ((first, second), ratios[first, candidates.plain_second] + ratios[best[0], second] - ratios[best])
        for first in firsts
        for second in seconds
    ]


def survivors(ranked: Sequence[tuple[float, Pair]], most: int, may: Callable[[Pair], bool]) -> list[tuple[float, Pair]]:
    """The best `most` of those that may be tried and promise to be faster than what runs without a row.

    No kernel is in more than ALIKE of them: one that is fast because it is wrong would take all places.
    """
    chosen: list[tuple[float, Pair]] = []
    times = Counter[str]()
    for ratio, pair in ranked:
        if ratio >= 1 or len(chosen) == most:
            break
        if all(times[kernel] < ALIKE for kernel in pair) and may(pair):
            chosen.append((ratio, pair))
            times.update(pair)
    return chosen
