"""Where a job's layer comes from: drawn, or read from a checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch

from moeshapes.verify.job import Job
from moeshapes.workload import Layer, draw_layer


def layer_of(job: Job) -> Layer:
    """The layer that a job asks for.

    Raises CheckpointError where its checkpoint cannot be read, ValueError where its problem is no layer's.
    """
    device = torch.device(job.device)
    if job.weights is None:
        return draw_layer(job.problem, job.seed, device, job.max_elements)
    # Here, since machines that only draw need no safetensors.
    from moeshapes.checkpoint.layer import read_layer

    given = job.weights
    return read_layer(Path(given.folder), given.layer, job.problem, given.rank, job.max_elements, device)
