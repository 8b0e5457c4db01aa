"""Decode steps of a trace: which kernels belong to which, how long the MoE's ran, and how long the step took.

SGLang's annotations are those of `build_step_span_name` in sglang/srt/utils/profile_utils.py (0.5.23), vLLM's those of
`annotate_profile` in vllm/v1/worker/gpu_worker.py, the detailed and the short form and that of before 0.12.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from moeshapes.findings import Finding, Place
from moeshapes.kernel_name import parse
from moeshapes.report.serving_rules import NO_MOE_KERNELS, NO_STEPS
from moeshapes.report.trace_file import Event, Trace

MOE_SYMBOLS = (
    r"(?i)moe"  # fmoe…, mfma_moe1_…, moe_ck2stages…, MoeFlatmm, opus_moe…, fused_moe_kernel, moe_align_block_size
    r"|gemm[12]_a\d+w\d+\w*_port"  # FlyDSL's mxmoe and a16w4 pairs
    r"|sort_(?:count|cumsum|place_pad|quant|scales)_kernel|scatter_reduce_(?:kernel|mxfp4)"  # AITER's MXFP4 helpers
)
"""Symbols of the MoE's kernels in AITER, SGLang and vLLM, beside the names that AITER's tables have."""
_DECODE = (
    re.compile(r"step\[(?P<kind>DECODE|VERIFY) bs=(?P<batch>\d{1,9})\b"),
    re.compile(r"execute_(?:\d{1,9}_)?context_0\([^)]{0,200}\)_generation_(?P<batch>\d{1,9})\("),
    re.compile(r"execute_new_0_cached_(?P<batch>\d{1,9})\b"),
)


@dataclass(frozen=True)
class Step:
    """One decode step on the GPU, in microseconds: from its first kernel to the end of its last, and in MoE kernels.

    `kind` says how many requests decode, as the annotation does. Kernels that overlap count once.
    """

    kind: str
    wall_us: float
    moe_us: float


@dataclass(frozen=True)
class Steps:
    """The decode steps of a trace, and what each MoE kernel takes in a mean one, the longest first."""

    steps: tuple[Step, ...]
    kernels: Mapping[str, float]


def steps_of(trace: Trace, symbols: str = MOE_SYMBOLS, gap_us: float | None = None) -> Steps | Finding:
    """The decode steps by the annotations, or, where `gap_us` is given, by idle times of at least so long."""
    groups = _by_gap(trace.kernels, gap_us) if gap_us is not None else _by_annotation(trace)
    if not groups:
        what = "by its idle times" if gap_us is not None else "annotated by SGLang or vLLM"
        return Finding(NO_STEPS, Place(trace.file), f"no decode step {what}")
    is_moe = _moe_names((kernel.name for _, kernels in groups for kernel in kernels), symbols)
    steps = tuple(_step(kind, kernels, is_moe) for kind, kernels in groups)
    if not any(step.moe_us for step in steps):
        message = f"none of {len(trace.kernels)} kernels is one of the MoE"
        return Finding(NO_MOE_KERNELS, Place(trace.file), message)
    totals: defaultdict[str, float] = defaultdict(float)
    for _, kernels in groups:
        for kernel in kernels:
            if is_moe[kernel.name]:
                totals[kernel.name] += (kernel.end - kernel.start) / len(steps)
    return Steps(steps, dict(sorted(totals.items(), key=lambda item: -item[1])))


class _Group(NamedTuple):
    """The kernels of a step, in the order of their starts."""

    kind: str
    kernels: Sequence[Event]


def _moe_names(names: Iterable[str], symbols: str) -> dict[str, bool]:
    pattern = re.compile(symbols)
    return {name: bool(pattern.search(name)) or parse(name) is not None for name in set(names)}


def _step(kind: str, kernels: Sequence[Event], is_moe: Mapping[str, bool]) -> Step:
    wall = max(kernel.end for kernel in kernels) - kernels[0].start
    return Step(kind, wall, _covered([kernel for kernel in kernels if is_moe[kernel.name]]))


def _covered(events: Sequence[Event]) -> float:
    """The time in which any of them runs; they are in the order of their starts."""
    total, reached = 0.0, float("-inf")
    for event in events:
        total += max(0.0, event.end - max(event.start, reached))
        reached = max(reached, event.end)
    return total


def _by_annotation(trace: Trace) -> list[_Group]:
    """By what the GPU saw of the annotations; else by which of them a kernel was launched in."""
    on_gpu = _decode_ranges(trace.gpu_ranges)
    if on_gpu:
        return _within(on_gpu, ((kernel.start, kernel) for kernel in trace.kernels))
    launched = {launch.correlation: launch.start for launch in trace.launches if launch.correlation is not None}
    known = ((launched[k.correlation], k) for k in trace.kernels if k.correlation in launched)
    return _within(_decode_ranges(trace.cpu_ranges), known)


def _decode_ranges(ranges: Iterable[Event]) -> list[tuple[str, Event]]:
    """The decode steps' ranges. Those of several streams that overlap under one name are one."""
    found: list[tuple[str, Event]] = []
    for event in ranges:
        kind = _kind(event.name)
        if kind is None:
            continue
        last = found[-1][1] if found else None
        if last and last.name == event.name and event.start < last.end:
            found[-1] = (kind, Event(last.name, last.start, max(last.end, event.end)))
        else:
            found.append((kind, event))
    return found


def _kind(name: str) -> str | None:
    for pattern in _DECODE:
        match = pattern.match(name)
        if match:
            kind = str(match.groupdict().get("kind") or "decode").lower()
            return f"{kind}, {int(match['batch'])} requests"
    return None


def _within(ranges: Sequence[tuple[str, Event]], timed: Iterable[tuple[float, Event]]) -> list[_Group]:
    """The kernels of each range by the time given with each; ranges without any are none."""
    starts = [event.start for _, event in ranges]
    groups: defaultdict[int, list[Event]] = defaultdict(list)
    for time, kernel in timed:
        index = bisect_right(starts, time) - 1
        if index >= 0 and time <= ranges[index][1].end:
            groups[index].append(kernel)
    return [_Group(ranges[index][0], groups[index]) for index in sorted(groups)]


def _by_gap(kernels: Sequence[Event], gap_us: float) -> list[_Group]:
    """Steps between idle times; the first and the last, which may be cut, are left out where there are more."""
    groups = [_Group("step", group) for group in _apart(kernels, gap_us)]
    return groups[1:-1] if len(groups) > 2 else []


def _apart(kernels: Sequence[Event], gap_us: float) -> Iterator[list[Event]]:
    group: list[Event] = []
    reached = float("inf")
    for kernel in kernels:
        if kernel.start - reached >= gap_us:
            yield group
            group, reached = [], kernel.end
        group.append(kernel)
        reached = kernel.end if reached == float("inf") else max(reached, kernel.end)
    yield group
