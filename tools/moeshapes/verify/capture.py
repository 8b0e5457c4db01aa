"""Arms in CUDA or HIP graphs: captured calls whose inputs change under them, and a lab that times graphs of many."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from moeshapes.backends.base import Arm
from moeshapes.verify.poison import Pattern, poisoned
from moeshapes.workload import Call

_SPIN_CYCLES = 200_000
"""About a tenth of a millisecond: a clock is read off how long a kernel takes that counts so many of its ticks."""
_GAPS, _LARGEST_GAP = 6, 4 << 20
"""Of memory that are held before each call of a capture, and the size in bytes of the largest."""


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Captures what is launched within it. torch's own collects garbage first, at fifty times a capture's cost."""
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        try:
            yield
        finally:
            graph.capture_end()


@contextmanager
def activated(runs: Sequence[tuple[Arm, Call]]) -> Iterator[None]:
    """All arms of `runs` are active: each copy of the weights has one of its own.

    They are of one row, so that it does not matter whose table the library reads.
    """
    with ExitStack() as stack:
        for arm in {id(arm): arm for arm, _ in runs}.values():
            stack.enter_context(arm.activate())
        yield


class CapturedCall:
    """One call of an arm in a graph; `pattern` fills what it allocates, at every replay."""

    def __init__(self, arm: Arm, example: Call, pattern: Pattern | None) -> None:
        self.inputs = Call(example.activations.clone(), example.topk_ids.clone(), example.topk_weights.clone())
        self.graph = torch.cuda.CUDAGraph()
        with arm.activate(), capturing(self.graph), poisoned(pattern):
            self.output = arm.run(self.inputs)

    def run(self, call: Call) -> Tensor:
        """The output for a call of as many tokens as the example had, in memory of its own."""
        self.inputs.activations.copy_(call.activations)
        self.inputs.topk_ids.copy_(call.topk_ids)
        self.inputs.topk_weights.copy_(call.topk_weights)
        self.graph.replay()
        return self.output.clone()


class _TimedGraph:
    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self.graph = graph
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def replay_us(self) -> float:
        self.begin.record()
        self.graph.replay()
        self.end.record()
        self.end.synchronize()
        return 1e3 * float(self.begin.elapsed_time(self.end))


class GpuLab:
    """A timing.Lab. `arms[i]` is what arm i runs in a graph, one (arm, call) after another."""

    def __init__(self, arms: Sequence[Sequence[tuple[Arm, Call]]], seed: int) -> None:
        self.arms = arms
        self.random = random.Random(seed)
        self.graphs: list[torch.cuda.CUDAGraph] = []

    def capture(self, arm: int) -> _TimedGraph:
        graph = torch.cuda.CUDAGraph()
        runs = self.arms[arm]
        held: list[Tensor] = []
        with activated(runs), capturing(graph):
            for each, call in runs:
                held += self._gaps()
                each.run(call)
            self.epilogue(arm)
            held.clear()
        self.graphs.append(graph)
        return _TimedGraph(graph)

    def _gaps(self) -> list[Tensor]:
        """Memory of random sizes: while it is held, no call's buffers are where another's were, here or in any other
        capture. What small kernels take depends on it by more than a percent.
        """
        sizes = [int(_LARGEST_GAP ** self.random.random()) for _ in range(_GAPS)]
        return [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]

    def epilogue(self, arm: int) -> None:
        """What else a capture ends with: nothing, but where a slowdown is planted."""

    def clock_mhz(self) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(_SPIN_CYCLES)
        end.record()
        end.synchronize()
        return _SPIN_CYCLES / (1e3 * float(begin.elapsed_time(end)))

    def release(self) -> None:
        for graph in self.graphs:
            graph.reset()
        self.graphs.clear()
        give_back_memory()


def give_back_memory() -> None:
    """What graphs that are gone had allocated: torch keeps it apart, and finds no use for it by itself."""
    torch.cuda.empty_cache()
