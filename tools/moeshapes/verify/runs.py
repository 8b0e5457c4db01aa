"""Which runs a token count gets: which call each is given, whether its memory is poisoned, whether it gets a buffer.

Consecutive runs never share inputs, so that a stale output shows; the unpoisoned ones repeat call A, so that it is in
PyTorch's ordinary mode that determinism is judged; half are poisoned. Large buckets that are emulated get three, one of
them poisoned: patterns take turns over their token counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from moeshapes.verify.poison import Pattern

FULL_RUNS_UP_TO = 16
A, B, C = 0, 1, 2


@dataclass(frozen=True)
class Run:
    call: int
    poison: Pattern | None = None
    out_buffer: bool = False


@dataclass(frozen=True)
class Replays:
    """A captured call, replayed with one call's inputs after another."""

    poison: Pattern | None
    calls: tuple[int, ...]


REPLAYS = (
    Replays(None, (A, B, A, C, A, B, A, C, A)),
    Replays(Pattern.FIRST, (B, A, C, A, B, C, A, B)),
    Replays(Pattern.SECOND, (C, B, A, C, B, A, C, B)),
)
"""What a row is captured for on a GPU, 25 replays in all."""

_FULL = (
    Run(A),
    Run(B),
    Run(A),
    Run(C),
    Run(A),
    Run(B, Pattern.FIRST),
    Run(A, Pattern.SECOND),
    Run(C, Pattern.FIRST),
    Run(B, Pattern.SECOND, out_buffer=True),
    Run(A, Pattern.FIRST),
    Run(C, Pattern.INDEX),
)
_ONE_TOKEN = (Run(A), Run(B, Pattern.FIRST, out_buffer=True), Run(A), Run(C, Pattern.SECOND))


def runs_of(bucket: int, position: int, thorough: bool = True, on_gpu: bool = False) -> tuple[Run, ...]:
    """The runs at a bucket's `position`-th token count: ten and one on poisoned indices to bucket 16, three above.

    On a GPU there are all eleven at every bucket. Where no row's evidence hangs on it, as for the default plan of a
    declared use, three do from two tokens on; at one token a fourth is the probe.
    """
    if thorough and (on_gpu or bucket <= FULL_RUNS_UP_TO):
        return _FULL
    if bucket == 1:
        return _ONE_TOKEN
    pattern = (Pattern.FIRST, Pattern.SECOND)[position % 2]
    return (Run(A), Run(B, pattern, out_buffer=True), Run(A))
