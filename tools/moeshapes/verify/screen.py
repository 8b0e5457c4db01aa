"""A first look at many candidates of one bucket: which run at all, on plausible numbers, and about how fast.

It only saves the verifier's time. What it lets through is judged by check and speed like any other row.
"""

from __future__ import annotations

import statistics
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from moeshapes.backends.base import Arm, Backend
from moeshapes.verify.capture import GpuLab
from moeshapes.verify.check import LayerCache
from moeshapes.verify.job import Job
from moeshapes.verify.speed import CALLS, Serving, warm_up
from moeshapes.workload import Call

APART = 0.25
"""How far a token's output may be from that of what runs without a row, as a share of its length. Kernels that only
round in other places are closer by far; one that drops a block or an expert is not."""
_REPLAYS = 5
_SMALLEST_SHARE = 1e-3
"""Tokens shorter than this share of the longest are measured as if they had that length."""


def screen(job: Job, backend: Backend, cache: LayerCache, ready: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """`us` of a call without a row, and by the order of job.candidates `candidates`: `us`, or `error` in words.

    Microseconds are the median replay's of a graph of CALLS calls, captured once. `ready` is called before each
    candidate, which may take the time of a job. Raises what leaves the device unusable.
    """
    serving = Serving.of(job, backend, cache)
    runs = serving.runs(None)
    us = _timed(runs, job.seed)
    output = _output(job, runs)
    found = []
    for launch in job.candidates:
        ready()
        found.append(_looked_at(job, serving, launch, output))
    return {"us": us, "candidates": found}


def _looked_at(job: Job, serving: Serving, launch: Mapping[str, Any], wanted: Tensor) -> dict[str, Any]:
    try:
        runs = serving.runs(launch)
        fault = why_implausible(_output(job, runs), wanted)
        if fault:
            return {"error": fault}
        us = _timed(runs, job.seed)
        runs[0][0].launched()
        return {"us": us}
    except Exception as error:
        traceback.print_exc()
        torch.cuda.synchronize()  # raises again where every later kernel would fail too
        return {"error": f"{type(error).__name__}: {error}"}


def _timed(runs: list[tuple[Arm, Call]], seed: int) -> float:
    """Microseconds of a call."""
    warm_up([runs])
    lab = GpuLab([runs], seed)
    graph = lab.capture(0)
    graph.replay_us()
    us = statistics.median(graph.replay_us() for _ in range(_REPLAYS))
    lab.release()
    return us / CALLS


def _output(job: Job, runs: list[tuple[Arm, Call]]) -> Tensor:
    """Of the first call, without padded columns."""
    arm, call = runs[0]
    with arm.activate():
        return arm.run(call)[:, : job.problem.logical_model_dim].clone()


def why_implausible(output: Tensor, wanted: Tensor) -> str:
    """Why an output `[M, H]` is none that kernels could give for which others give `wanted`; empty where it is."""
    bad = int((~output.isfinite()).sum())
    if bad:
        return f"{bad} NaN or Inf"
    length = wanted.float().norm(dim=1)
    least = (_SMALLEST_SHARE * length.max()).clamp(min=torch.finfo(torch.float32).tiny)
    share = float(((output.float() - wanted.float()).norm(dim=1) / length.clamp(min=least)).max())
    return "" if share <= APART else f"a token is {share:.2g} of its length from what runs without a row"
