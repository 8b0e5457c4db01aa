"""Compiling ahead of need: while workers run a row, other processes compile the kernels of those that come next.

What they compile is found in Triton's cache. An error is left to the worker that needs the kernel: it says whose it is.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from moeshapes.problem import Problem
from moeshapes.verify.child import end_with_parent
from moeshapes.verify.gpus import Gpu
from moeshapes.verify.job import Job
from moeshapes.verify.site import PORTABLE

_MOST_PROCESSES = 14
_CORES_LEFT = 2
"""For a worker and for whoever else is on the machine."""
_NICENESS = 5


def processes_here() -> int:
    """How many compile at once on this machine; 0 where there is no core to spare."""
    return max(0, min(_MOST_PROCESSES, (os.cpu_count() or 1) - _CORES_LEFT))


@dataclass(frozen=True)
class Task:
    """What compile.compile_row takes, and the number of the GPU that it compiles for."""

    problem: Problem
    launch: dict[str, Any] | None
    token: int
    counts: tuple[int, ...]
    gpu: int


def tasks_of(jobs: Iterable[Job], gpus: Sequence[Gpu]) -> list[Task]:
    """What jobs of the portable kernels on GPUs launch, each once, in the order in which it is needed."""
    index_of = {gpu.kind: gpu.index for gpu in reversed(gpus)}
    tasks: dict[str, Task] = {}
    for job in jobs:
        if job.backend == PORTABLE and job.gpu in index_of:
            for launch in launches_of(job):
                task = Task(job.problem, launch, job.token, job.counts, index_of[job.gpu])
                tasks.setdefault(_name(task), task)
    return list(tasks.values())


def launches_of(job: Job) -> Iterator[dict[str, Any] | None]:
    """The launch fields of all arms that the job's worker runs; None for what runs without a row."""
    yield from (job.launch, None)
    if job.replaced is not None:
        yield job.replaced
    yield from job.candidates


def _name(task: Task) -> str:
    parts = [task.problem.as_json(), task.launch, task.token, task.counts, task.gpu]
    return json.dumps(parts, sort_keys=True)


@contextmanager
def precompiling(jobs: Iterable[Job], gpus: Sequence[Gpu], processes: int) -> Iterator[None]:
    """Compiles what the jobs launch while its body runs, and stops with it, whatever is still being compiled."""
    tasks = tasks_of(jobs, gpus) if processes else []
    if not tasks:
        yield
        return
    # A fork would inherit locks that threads hold, and a GPU's context that it must not touch.
    executor = ProcessPoolExecutor(
        min(processes, len(tasks)), multiprocessing.get_context("spawn"), _begin, (os.getpid(),)
    )
    others = set(multiprocessing.active_children())
    try:
        with contextlib.suppress(BrokenExecutor):  # what they have no time for, workers compile
            for task in tasks:
                executor.submit(_compile, task)
        yield
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.kill()


def _begin(parent: int) -> None:
    """Ctrl-C is the parent's, which ends its processes; they end by themselves where it cannot. Workers come first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    end_with_parent(parent)


def _compile(task: Task) -> None:
    import torch

    from moeshapes.backends.portable.compile import compile_row

    torch.set_num_threads(1)
    # Only where it must be: choosing a device takes memory on it.
    if torch.cuda.current_device() != task.gpu:
        torch.cuda.set_device(task.gpu)
    compile_row(task.problem, task.launch, task.token, task.counts)
