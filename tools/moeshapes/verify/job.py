"""A job: one (row, use) to verify, self-contained. A worker needs this and nothing else of the repository."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from moeshapes.problem import Problem


@dataclass(frozen=True)
class Job:
    """What a worker is asked to verify.

    `launch` holds the row's launch fields (row.LAUNCH_COLUMNS), None for the default plan of a declared shape. `counts`
    are the true token counts to run at bucket `token`. `max_elements` bounds the distinct weights drawn.
    `thorough` asks for all runs. `gpu` is the kind of GPU (gpus.Gpu.kind) whose workers take it, empty for the CPU's.
    """

    id: str
    name: str
    use_id: str
    token: int
    counts: tuple[int, ...]
    problem: Problem
    launch: dict[str, Any] | None
    backend: str
    device: str
    seed: int
    max_elements: int
    thorough: bool = True
    gpu: str = ""

    @property
    def layer_key(self) -> str:
        """Jobs of equal layer_key share their weights."""
        parts = [self.problem.as_json(), self.backend, self.device, self.seed, self.max_elements]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        data = json.loads(text)
        return cls(**{**data, "counts": tuple(data["counts"]), "problem": Problem.from_json(data["problem"])})
