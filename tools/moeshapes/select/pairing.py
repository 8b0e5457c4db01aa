"""Pairs: which timed kernels make a row together, and the cheapest of them for each key."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from moeshapes.expand import Declarations
from moeshapes.findings import Finding, Place
from moeshapes.kernel_name import KernelName, parse
from moeshapes.row import Key, TunedRow
from moeshapes.rule import Severity
from moeshapes.rules import lint_row
from moeshapes.rules.errors import TOO_HIGH
from moeshapes.rules.throughput import throughput_cells
from moeshapes.select.profile import ONE_STAGE_OF_BF16, STAGE1, STAGE2, Profile, Timed

MOST_TRIED = 20_000
"""Pairs of a key that are looked at, cheapest first, where rules refuse one after another."""
FUSED, APART, ONE_KERNEL, WHOLE = "fused", "apart", "one kernel", "whole"
"""What a candidate's time holds (contract 7.4): both kernels, both without the quantisation in between, one kernel of
both stages, or all of it where the tuner has summed it up."""

_COUPLED = ("mxmoe", "triton", "grouped")
"""Families whose two kernels have a layout of their own between them."""
_DECIMALS = 4
_ONE_STAGE_ERROR = "0.0%"
_KERNEL_RULES = "MOE3"


@dataclass(frozen=True)
class Candidate:
    """A row that could be adopted. Its place is its first kernel's in the profile, `second` its other one's."""

    row: TunedRow
    second: Place | None
    times: str

    @property
    def source(self) -> str:
        """Where its times stand: `profile_fmoe.csv:3+9`."""
        if self.second is None:
            return str(self.row.place)
        same = self.second.file == self.row.place.file
        return f"{self.row.place}+{self.second.line if same else self.second}"


@dataclass(frozen=True)
class Offer:
    """The candidates for a key, cheapest first by kind of time, and how many were refused, by reason."""

    key: Key
    candidates: tuple[Candidate, ...]
    refused: Counter[str]


def offers(
    profiles: Iterable[Profile], declarations: Declarations, top: int, wanted: Callable[[TunedRow], bool]
) -> list[Offer]:
    """For every declared key of the profiles that a `wanted` row has, the `top` cheapest candidates of each kind.

    Times of different kinds hold different work, and those of different files come from different runs: neither says
    which is faster, so that each has its own `top`.
    """
    found: dict[Key, list[Offer]] = defaultdict(list)
    for profile in profiles:
        for key, choices in _by_key(profile).items():
            found[key].append(_offer(key, choices, declarations, top, wanted))
    joined = [_joined(key, parts) for key, parts in found.items()]
    return sorted((offer for offer in joined if offer.candidates or offer.refused), key=lambda offer: offer.key)


def why_not_paired(first: Timed, second: Timed) -> str:
    """Why stage 2 cannot read what stage 1 writes (contract 4.8); empty where it can, or nothing tells."""
    if first.block_m != second.block_m:
        return "block_m differs"
    if None not in (first.v2, second.v2) and first.v2 != second.v2:
        return "timed with different layouts between the stages"
    a, b = parse(first.kernel), parse(second.kernel)
    if a is None or b is None:
        return "a kernel of unknown kind"
    if _coupling(a) != _coupling(b):
        return "kernels with different layouts between the stages"
    if _reads_sorted_rows(b) and not a.out_quant:
        return "stage 2 reads sorted rows, which only a stage 1 with fused quantisation writes"
    if a.out_quant and (b.a is None or b.a.value != a.out_quant):
        return "stage 2 does not read the format that stage 1 quantises to"
    if a.family == "asm_stage1" and b.family.startswith("flydsl"):
        return "after assembly AITER does not heed FlyDSL names"
    return ""


def _coupling(kernel: KernelName) -> str:
    return next((family for family in _COUPLED if kernel.family.startswith(family)), "")


def _reads_sorted_rows(kernel: KernelName) -> bool:
    return kernel.family == "moe2_layout" or kernel.render().startswith("opus_moe2_layout_")


Choices = tuple[list[Timed], list[Candidate]]
"""A key's kernels, and its candidates that are whole."""


def _by_key(profile: Profile) -> dict[Key, Choices]:
    found: dict[Key, Choices] = defaultdict(lambda: ([], []))
    for timed in profile.kernels:
        found[timed.key][0].append(timed)
    for row in profile.pairs:
        found[row.key][1].append(Candidate(row, None, WHOLE))
    return found


def _offer(
    key: Key, choices: Choices, declarations: Declarations, top: int, wanted: Callable[[TunedRow], bool]
) -> Offer:
    kernels, whole = choices
    refused = Counter[str]()
    if not (declarations.of(key) or declarations.of(key, portable=True)):
        return Offer(key, (), refused)

    def passes(candidate: Candidate) -> bool:
        if not declarations.of_row(candidate.row) or not wanted(candidate.row):
            return False
        reasons = _objections(candidate.row, declarations)
        refused.update(reasons[:1])
        return not reasons

    sound = _sound(kernels, declarations, refused)
    streams = [_alone(sound), _paired(sound, refused), sorted(whole, key=_cost)]
    candidates = [each for stream in streams for each in _cheapest(stream, passes, top)]
    return Offer(key, tuple(candidates), refused)


def _cheapest(stream: Iterable[Candidate], passes: Callable[[Candidate], bool], top: int) -> Iterator[Candidate]:
    """The first `top` of each kind that pass, of candidates that come cheapest first."""
    taken = Counter[str]()
    for candidate in stream:
        if taken[candidate.times] < top and passes(candidate):
            taken[candidate.times] += 1
            yield candidate


def _objections(row: TunedRow, declarations: Declarations) -> list[str]:
    """The errors that lint has of a row, by rule and without its figures."""
    found = lint_row(row, declarations)
    return [f"{each.rule.id} {each.rule.name}" for each in found if each.rule.severity is Severity.ERROR]


def _sound(kernels: Sequence[Timed], declarations: Declarations, refused: Counter[str]) -> list[Timed]:
    """Kernels that are refused whatever they are paired with would hide the others behind them."""
    kept = []
    for timed in kernels:
        own = _own_faults(timed, declarations)
        refused.update(f"{each.rule.id} {each.rule.name}" for each in own[:1])
        if not own:
            kept.append(timed)
    return kept


def _own_faults(timed: Timed, declarations: Declarations) -> list[Finding]:
    """What lint has against the kernel itself, or its error: tuners keep the times of those that compute nothing."""
    stage, half = (2, _row(None, timed)) if timed.stage == STAGE2 else (1, _row(timed, None))
    found = (each for each in lint_row(half, declarations) if each.rule.severity is Severity.ERROR)
    return [
        each
        for each in found
        if (each.rule.id.startswith(_KERNEL_RULES) and f"kernelName{stage}" in each.message) or each.rule is TOO_HIGH
    ]


def _alone(kernels: Iterable[Timed]) -> Iterator[Candidate]:
    """Kernels of both stages."""
    for timed in sorted(kernels, key=lambda timed: timed.us):
        if timed.stage not in (STAGE1, STAGE2):
            yield Candidate(_row(timed, None), None, ONE_KERNEL)


def _paired(kernels: Iterable[Timed], refused: Counter[str]) -> Iterator[Candidate]:
    """Pairs of one block_m that fit, cheapest first."""
    by_block: dict[int, tuple[list[Timed], list[Timed]]] = defaultdict(lambda: ([], []))
    for timed in sorted(kernels, key=lambda timed: timed.us):
        if timed.stage in (STAGE1, STAGE2):
            by_block[timed.block_m][timed.stage == STAGE2].append(timed)
    streams = [_ascending(firsts, seconds) for firsts, seconds in by_block.values()]
    for _, first, second in islice(heapq.merge(*streams, key=lambda pair: pair[0]), MOST_TRIED):
        reason = why_not_paired(first, second)
        if reason:
            refused[reason] += 1
            continue
        name = parse(first.kernel)
        yield Candidate(_row(first, second), second.place, FUSED if name and name.out_quant else APART)


def _ascending(firsts: Sequence[Timed], seconds: Sequence[Timed]) -> Iterator[tuple[float, Timed, Timed]]:
    """All pairs of two ascending lists by the sum of their times, without building them all."""
    heap = [(firsts[0].us + seconds[0].us, 0, 0)] if firsts and seconds else []
    while heap:
        total, i, j = heapq.heappop(heap)
        yield total, firsts[i], seconds[j]
        if j + 1 < len(seconds):
            heapq.heappush(heap, (firsts[i].us + seconds[j + 1].us, i, j + 1))
        if j == 0 and i + 1 < len(firsts):
            heapq.heappush(heap, (firsts[i + 1].us + seconds[0].us, i + 1, 0))


def _row(first: Timed | None, second: Timed | None) -> TunedRow:
    """The tuned row of two kernels, or of one; what is not there is empty."""
    some = first or second
    assert some is not None
    us1, us2 = (round(timed.us, _DECIMALS) if timed else 0.0 for timed in (first, second))
    us = round(us1 + us2, _DECIMALS) or some.us
    tflops, bw = throughput_cells(some.key.shape, us)
    return TunedRow(
        key=some.key,
        tag="",
        block_m=some.block_m,
        ksplit=first.ksplit if first else 0,
        us1=us1,
        kernel1=first.kernel if first else "",
        err1=first.err if first else _ONE_STAGE_ERROR,
        us2=us2,
        kernel2=second.kernel if second else "",
        err2=second.err if second else _ONE_STAGE_ERROR,
        us=us,
        run_1stage=some.stage not in (STAGE1, STAGE2),
        xbf16=int(some.stage == ONE_STAGE_OF_BF16),
        flat=0 if some.stage in (STAGE1, STAGE2) else some.flat,
        tflops=tflops,
        bw=bw,
        place=some.place,
    )


def _cost(candidate: Candidate) -> float:
    return candidate.row.us


def _joined(key: Key, parts: Sequence[Offer]) -> Offer:
    candidates = (each for part in parts for each in part.candidates)
    return Offer(key, tuple(sorted(candidates, key=_cost)), sum((part.refused for part in parts), Counter()))
