"""What a job's arm is run on: calls of each token count, and the targets that references give for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from moeshapes import oracle
from moeshapes.arithmetic import Arithmetic, default_arithmetic
from moeshapes.recipe import QType
from moeshapes.verify.job import Job
from moeshapes.verify.numerics import Target, target_of
from moeshapes.verify.runs import FULL_RUNS_UP_TO, A, Run, runs_of
from moeshapes.workload import Call, Layer, draw_calls, generator_of

SAMPLE = 512
"""Tokens of a larger call that the references compute; NaN and what was not written are looked for in all."""
_TOGETHER_UP_TO = {"cpu": FULL_RUNS_UP_TO, "cuda": SAMPLE}
"""Buckets whose token counts share one pass over the weights: those of larger ones would need much memory."""


@dataclass(frozen=True)
class Trial:
    """The calls of one token count with their targets, and the target of the baseline for call A where it is wanted.

    `sample` holds call A's tokens that targets are for, all of them in small calls.
    """

    count: int
    calls: Sequence[Call]
    targets: Sequence[Target]
    baseline: Target | None
    sample: Call


def trials_of(job: Job, layer: Layer, arithmetic: Arithmetic) -> Iterator[Trial]:
    """A trial for each of the job's token counts."""
    together = len(job.counts) if job.token <= _TOGETHER_UP_TO[layer.device.type] else 1
    for start in range(0, len(job.counts), together):
        yield from _group(job, layer, arithmetic, job.counts[start : start + together], with_baseline=start == 0)


def runs_at(job: Job, position: int) -> tuple[Run, ...]:
    """The runs at the job's `position`-th token count."""
    return runs_of(job.token, position, job.thorough, on_gpu=bool(job.gpu))


def _group(
    job: Job, layer: Layer, arithmetic: Arithmetic, counts: Sequence[int], with_baseline: bool
) -> Iterator[Trial]:
    calls = [_drawn(job, layer, count) for count in counts]
    rows = [_sample(job, layer, count) for count in counts]
    sampled = [[_part(call, chosen) for call in group] for group, chosen in zip(calls, rows, strict=True)]
    flat = [call for group in sampled for call in group]
    passes = [oracle.Pass(flat, None), oracle.Pass(flat, arithmetic)]
    fallback = default_arithmetic(job.problem.recipe, job.token)
    if job.launch is not None and with_baseline:
        passes.append(oracle.Pass([sampled[0][A]], fallback))
    exact, modelled, *baseline = oracle.references(layer, passes)
    topk, width = layer.problem.topk, len(calls[0])
    targets = [target_of(o, r, topk, arithmetic.modelled) for o, r in zip(exact, modelled, strict=True)]
    without_row = [target_of(exact[A], found[0], topk, fallback.modelled) for found in baseline]
    for index, count in enumerate(counts):
        own = [replace(target, rows=rows[index]) for target in targets[index * width : (index + 1) * width]]
        first = replace(without_row[0], rows=rows[0]) if without_row and index == 0 else None
        yield Trial(count, calls[index], own, first, sampled[index][A])


def _drawn(job: Job, layer: Layer, count: int) -> Sequence[Call]:
    """The calls that the bucket's runs use."""
    used = 1 + max(run.call for run in runs_at(job, 0))
    return draw_calls(layer, count, job.seed + count)[:used]


def _sample(job: Job, layer: Layer, count: int) -> Tensor | None:
    """Which tokens of a large call the references compute, the first and the last among them; None for all.

    One scale for all of a tensor follows from all of it.
    """
    if count <= SAMPLE or job.problem.recipe.q_type is QType.PER_TENSOR:
        return None
    generator = generator_of(job.seed + count, layer.device)
    inner = torch.randperm(count - 2, generator=generator, device=layer.device)[: SAMPLE - 2] + 1
    ends = torch.tensor([0, count - 1], device=layer.device)
    chosen: Tensor = torch.cat((inner, ends)).sort().values
    return chosen


def _part(call: Call, rows: Tensor | None) -> Call:
    if rows is None:
        return call
    return Call(call.activations[rows], call.topk_ids[rows], call.topk_weights[rows])
