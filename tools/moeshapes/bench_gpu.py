"""Benchmarks on a GPU: whether the way of timing can be trusted, and how near to the machine the portable kernels get.

Each part is a process of its own, `python -m moeshapes.bench_gpu PART`, which prints rows of cells as JSON.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from moeshapes.backends.base import Arm
from moeshapes.backends.portable.backend import PortableArm, PortableBackend
from moeshapes.backends.portable.sorting import sort_slots
from moeshapes.bench import PROBLEM
from moeshapes.problem import Problem
from moeshapes.verify.capture import GpuLab
from moeshapes.verify.child import printed_by
from moeshapes.verify.job import EVERY_EXPERT
from moeshapes.verify.speed import CALLS, serving_calls, warm_up
from moeshapes.verify.timing import FASTER, SAME, SLOWER, Graph, compare, interval
from moeshapes.workload import Call, draw_layer

SEED = 1
IDENTICAL, PLANTED = 72, 40
"""Comparisons a size: of an arm with itself, and with itself slowed down."""
PLANTED_SLOWDOWN = 0.015
_SINGLE_CAPTURE_REPLAYS = 100
_BUDGET_S = 1.0
TIMING_HEADERS = ("arms", "protocol", "comparisons", "faster or slower", "same", "largest error", "time each")


@dataclass(frozen=True)
class Sized:
    """A layer and a token count; `alone` for stage 1 without what goes before and after it."""

    problem: Problem
    tokens: int
    alone: bool = False


_SMALL = replace(PROBLEM, model_dim=2048, inter_dim=512, expert=16, topk=2, intermediate_pad=0, shared_experts=0)
SIZES = (
    Sized(replace(_SMALL, recipe_name="bf16"), 4, alone=True),
    Sized(replace(_SMALL, model_dim=5120), 8),
    Sized(PROBLEM, 12),
)


class StageOneAlone:
    """An arm that runs stage 1 of a portable arm's, on tiles that are sorted beforehand."""

    def __init__(self, arm: PortableArm, call: Call) -> None:
        self.arm = arm
        self.tiles = sort_slots(call.topk_ids, arm.problem.expert, arm.block_m)

    def activate(self) -> AbstractContextManager[None]:
        return self.arm.activate()

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        return self.arm.first_stage(call, self.tiles).codes

    def launched(self) -> list[str]:
        return self.arm.launched()

    def stages(self) -> None:
        return None


class SlowedLab(GpuLab):
    """Its arm 0 ends each graph with a kernel that only takes time."""

    cycles = 0

    def epilogue(self, arm: int) -> None:
        if arm == 0 and self.cycles:
            torch.cuda._sleep(self.cycles)


def timing_rows() -> list[list[str]]:
    """Rows of TIMING_HEADERS: the protocol and, beside it, one capture an arm with many paired replays."""
    rows = []
    for sized in SIZES:
        lab = _lab(sized)
        us = statistics.median(lab.capture(0).replay_us() for _ in range(5)) / CALLS
        lab.release()
        name = f"{us:.0f} µs a call"
        rows.append(_study(name, "re-captured", IDENTICAL, lambda lab=lab: _protocol(lab)))  # type: ignore[misc]
        rows.append(_study(name, "one capture", IDENTICAL, lambda lab=lab: _one_capture(lab)))  # type: ignore[misc]
        planted = _plant(lab, us * CALLS)
        slowed = f"{us:.0f} µs, {100 * planted:.2f} % slower"
        rows.append(_study(slowed, "re-captured", PLANTED, lambda lab=lab: _protocol(lab)))  # type: ignore[misc]
    return rows


def _lab(sized: Sized) -> SlowedLab:
    layer = draw_layer(sized.problem, SEED, torch.device("cuda"), max_elements=EVERY_EXPERT)
    arm = PortableBackend().prepare(layer).arm(None, sized.tokens)
    calls = serving_calls(layer, sized.tokens, SEED)
    runs: list[tuple[Arm, Call]] = [(StageOneAlone(arm, call) if sized.alone else arm, call) for call in calls]
    warm_up([runs])
    return SlowedLab([runs, runs], SEED)


def _protocol(lab: SlowedLab) -> tuple[str, float, float]:
    [found] = compare(lab, 1, CALLS, _BUDGET_S, noise=False)
    return found.verdict, math.log(found.ratio), found.seconds


def _one_capture(lab: SlowedLab) -> tuple[str, float, float]:
    """What is usually done: each arm captured once, the interval from the spread between replays."""
    began, graphs = torch.cuda.Event(enable_timing=True), (lab.capture(0), lab.capture(1))
    began.record()
    logs = [_log_ratio(*graphs) for _ in range(_SINGLE_CAPTURE_REPLAYS)]
    ended = torch.cuda.Event(enable_timing=True)
    ended.record()
    ended.synchronize()
    lab.release()
    verdict, mean, _, _ = interval(logs)
    return verdict, mean, float(began.elapsed_time(ended)) / 1e3


def _log_ratio(one: Graph, other: Graph) -> float:
    return math.log(one.replay_us() / other.replay_us())


def _plant(lab: SlowedLab, graph_us: float) -> float:
    """Slows arm 0 down by about PLANTED_SLOWDOWN, and says by how much, measured over many captures."""
    lab.cycles = 1
    for _ in range(2):
        lacking = PLANTED_SLOWDOWN - math.expm1(_mean_log(lab))
        lab.cycles = max(1, lab.cycles + int(lacking * graph_us * lab.clock_mhz()))
    return math.expm1(_mean_log(lab))


def _mean_log(lab: SlowedLab, captures: int = 24) -> float:
    logs = []
    for _ in range(captures):
        one, other = lab.capture(0), lab.capture(1)
        logs.append(statistics.fmean(_log_ratio(one, other) for _ in range(6)))
        lab.release()
    return statistics.fmean(logs)


def _study(name: str, protocol: str, number: int, once: Callable[[], tuple[str, float, float]]) -> list[str]:
    found = [once() for _ in range(number)]
    verdicts = Counter(verdict for verdict, _, _ in found)
    told = verdicts[FASTER] + verdicts[SLOWER]
    return [
        name,
        protocol,
        str(number),
        f"{100 * told / number:.1f} %",
        f"{100 * verdicts[SAME] / number:.1f} %",
        f"{100 * max(abs(log) for _, log, _ in found):.2f} %",
        f"{statistics.fmean(seconds for _, _, seconds in found):.2f} s",
    ]


def part(name: str, root: Path) -> list[list[str]]:
    """A part's rows, from a process of its own. Raises RuntimeError where that process fails."""
    rows: list[list[str]] = json.loads(printed_by("bench_gpu", name, str(root)).splitlines()[-1])
    return rows


def main() -> None:
    from moeshapes.bench_kernels import kernel_rows

    name, root = sys.argv[1:]
    parts: dict[str, Callable[[Path], Sequence[Sequence[str]]]] = {
        "timing": lambda _: timing_rows(),
        "kernels": kernel_rows,
    }
    with torch.inference_mode():
        print(json.dumps(parts[name](Path(root))))


if __name__ == "__main__":
    main()
