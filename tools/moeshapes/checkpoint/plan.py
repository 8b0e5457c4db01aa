"""A plan whose jobs take the weights of a checkpoint's layer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from moeshapes.checkpoint.share import is_of, ranks_of, why_not
from moeshapes.checkpoint.stored import StoredLayer
from moeshapes.record import digest
from moeshapes.verify.job import Job, Weights
from moeshapes.verify.plan import Planned


def with_weights(planned: Iterable[Planned], stored: StoredLayer, rank: int) -> list[Planned]:
    """What is planned of the layer's shape, its jobs with its weights; what is of other shapes is left out."""
    weights = Weights(str(stored.index.folder), stored.prefix, rank)
    content = stored.index.fingerprint(stored.shards)
    found = []
    for item in planned:
        if item.job is None or not is_of(stored, item.job.problem):
            continue
        reason = why_not(stored, item.job.problem, rank)
        job = None if reason else _job(item.job, weights, content)
        # What is committed is of drawn weights: it says nothing of these.
        found.append(replace(item, job=job, skipped=f"real weights: {reason}" if reason else "", lacks_gpu=False))
    return found


def ranks_by_use(planned: Iterable[Planned], stored: StoredLayer) -> dict[str, int]:
    """How many ranks share the layer, by each planned use that has its shape."""
    return {
        item.subject.use.id: ranks_of(stored, item.job.problem)
        for item in planned
        if item.job is not None and is_of(stored, item.job.problem)
    }


def _job(job: Job, weights: Weights, content: str) -> Job:
    """The job under a name that tells its evidence from that of drawn weights, and of other checkpoints."""
    return replace(job, id=digest([job.id, weights.layer, weights.rank, content]), weights=weights)


def shape_of(stored: StoredLayer) -> str:
    """The layer in words, for whoever looks for a row of it."""
    layer = f"{len(stored.experts)} experts of {stored.width} x {stored.inter}"
    shared = f", {stored.shared_experts} shared" if stored.shared else ""
    return f"`{stored.prefix}` ({stored.layout.family}): {layer}{shared}"
