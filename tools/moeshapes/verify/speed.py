"""Times a job's row against what runs without it and, where it takes one's place, against the row that was there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from moeshapes.backends.base import Arm, Backend, Prepared
from moeshapes.quant import Quantised
from moeshapes.verify.capture import GpuLab
from moeshapes.verify.check import LayerCache
from moeshapes.verify.gpus import gfx_of
from moeshapes.verify.job import Job
from moeshapes.verify.timing import compare
from moeshapes.workload import Call, Layer, draw_production_calls

CALLS = 10
BUDGET_S = 1.0
"""Of a comparison, a process."""
_INFINITY_CACHE = {"gfx942": 256 << 20, "gfx950": 256 << 20}
"""Bytes of the cache in front of memory, which torch does not tell of."""


def time_row(job: Job, backend: Backend, cache: LayerCache, ready: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """What one process finds of the row's speed: `tokens`, `calls`, `reuse_bytes`, `comparisons` and `noise`.

    Each comparison and the noise hold a timing.Pass. `ready` is called once everything is built and warm. Raises
    NotRunAsNamedError where other kernels ran than the row names.
    """
    serving = Serving.of(job, backend, cache)
    launches = {"row": job.launch, "baseline": None, **({"replaced": job.replaced} if job.replaced else {})}
    arms = {name: serving.runs(launch) for name, launch in launches.items()}
    runs = list(arms.values())
    warm_up(runs)
    ready()
    others = [name for name in arms if name != "row"]
    *passes, noise = compare(GpuLab(runs, job.seed), len(others), CALLS, BUDGET_S * len(others))
    arms["row"][0][0].launched()
    compared = [
        {"against": name, "launched": arms[name][0][0].launched(), "pass": found.as_json()}
        for name, found in zip(others, passes, strict=True)
    ]
    return {
        "tokens": job.counts[0],
        "calls": CALLS,
        "reuse_bytes": serving.reuse_bytes,
        "comparisons": compared,
        "noise": noise.as_json(),
    }


@dataclass(frozen=True)
class Serving:
    """CALLS calls of a job's largest token count that find no weights in a cache, as serving's do.

    Each has a routing and activations of its own, and takes its turn on copies of the weights, as many as it needs
    until what is read between two reads of one expert is twice the last-level cache.
    """

    job: Job
    calls: Sequence[Call]
    laid_out: Sequence[Prepared]
    reuse_bytes: int

    @classmethod
    def of(cls, job: Job, backend: Backend, cache: LayerCache) -> Serving:
        layer, prepared = cache.get(job, backend)
        tokens = job.counts[0]
        calls = serving_calls(layer, tokens, job.seed + tokens)
        reuse = reuse_bytes(calls, expert_bytes(layer))
        wanted = 2 * last_level_cache()
        copies = min(CALLS, math.ceil(wanted / reuse)) if reuse < wanted else 1
        laid_out = [prepared, *(backend.prepare(layer) for _ in range(copies - 1))]
        return cls(job, calls, laid_out, reuse * copies)

    def runs(self, launch: Mapping[str, Any] | None) -> list[tuple[Arm, Call]]:
        """The calls, each with the arm of these launch fields on the weights whose turn it is."""
        arms = [each.arm(launch, self.job.token, self.job.lookup) for each in self.laid_out]
        return [(arms[number % len(arms)], call) for number, call in enumerate(self.calls)]


def warm_up(runs: Sequence[Sequence[tuple[Arm, Call]]]) -> None:
    """Every call of every arm once, so that no kernel is built and no cache is filled while anything is timed."""
    for each in runs:
        for arm, call in each:
            with arm.activate():
                arm.run(call)
    torch.cuda.synchronize()


def serving_calls(layer: Layer, tokens: int, seed: int) -> list[Call]:
    """CALLS production-like calls of `tokens` tokens, as many as a graph holds, rotated."""
    return rotated(draw_production_calls(layer, tokens, seed, CALLS), layer.problem.expert)


def rotated(calls: Sequence[Call], experts: int) -> list[Call]:
    """The calls with experts renamed so that each call hits those that were idle for longest.

    What a call costs stays what it was, since experts weigh the same; but its weights have left the caches, as they
    have in serving, where the other layers come in between.
    """
    idle, found = list(range(experts)), []
    for call in calls:
        hit = [expert for expert in call.topk_ids.unique().tolist() if 0 <= expert < experts]
        places, idle = idle[: len(hit)], idle[len(hit) :]
        rest = [expert for expert in range(experts) if expert not in set(hit)]
        name = torch.empty(experts, dtype=torch.int32)
        name[hit + rest] = torch.tensor(places + idle, dtype=torch.int32)
        idle += places
        ids = call.topk_ids
        local = (ids >= 0) & (ids < experts)
        renamed = name.to(ids.device)[ids.clamp(0, experts - 1).long()]
        found.append(Call(call.activations, torch.where(local, renamed, ids), call.topk_weights))
    return found


def reuse_bytes(calls: Sequence[Call], bytes_of_expert: int) -> int:
    """About how much is read between two reads of one expert's weights, at the least, when the calls are repeated."""
    hits = [set(call.topk_ids.unique().tolist()) for call in calls]
    rounds = hits + hits
    least = sum(map(len, hits))
    for at in range(len(hits), len(rounds)):
        before = next(n for n in range(at - 1, -1, -1) if rounds[n] & rounds[at])
        least = min(least, sum(len(each) for each in rounds[before:at]))
    return least * bytes_of_expert


def expert_bytes(layer: Layer) -> int:
    """Of one expert's weights, both stages, scales included."""
    return sum(_bytes(weight) for weight in (layer.w1[0], layer.w2[0]))


def _bytes(weight: Quantised) -> int:
    parts = [weight.codes] if weight.scales is None else [weight.codes, weight.scales]
    return sum(part.numel() * part.element_size() for part in parts)


def last_level_cache() -> int:
    """Bytes of the largest cache between the GPU and its memory."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return _INFINITY_CACHE.get(gfx_of(properties), properties.L2_cache_size)
