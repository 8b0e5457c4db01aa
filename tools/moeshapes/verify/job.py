"""A job: one (row, use) to verify, self-contained. A worker needs this and nothing else of the repository."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from moeshapes.problem import Problem
from moeshapes.verify.lookup import NO_LOOKUP, Lookup

EVERY_EXPERT = 1 << 62
"""Elements (Job.max_elements) that leave every expert weights of its own, however large the layer."""
VERIFY, TIME, SCREEN = "verify", "time", "screen"


@dataclass(frozen=True)
class Weights:
    """A layer of a checkpoint, by its name or the end of it, as a rank of those that serve it holds it."""

    folder: str
    layer: str
    rank: int = 0


@dataclass(frozen=True)
class Job:
    """What a worker is asked to verify.

    `launch` holds the row's launch fields (row.LAUNCH_COLUMNS), None for the default plan of a declared shape. `counts`
    are the true token counts to run at bucket `token`. `max_elements` bounds the distinct weights drawn.
    `thorough` asks for all runs. `gpu` is the kind of GPU (gpus.Gpu.kind) whose workers take it, empty for the CPU's.
    `env` is the environment that serving sets: a library reads parts of it when it is imported, so that jobs of another
    one need another process. `lookup` is what the merged tables hold for the key beside the row. `weights` are drawn
    for None. `speed` asks for times too, beside those of the launch fields `replaced` where the row takes their place;
    `task` TIME asks for nothing else, SCREEN for a first look at the launch fields `candidates` (screen.screen).
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
    env: Mapping[str, str] = field(default_factory=dict)
    lookup: Lookup = NO_LOOKUP
    weights: Weights | None = None
    speed: bool = False
    replaced: dict[str, Any] | None = None
    task: str = VERIFY
    candidates: tuple[dict[str, Any], ...] = ()

    @property
    def layer_key(self) -> str:
        """Jobs of equal layer_key share their weights and their environment."""
        weights = None if self.weights is None else asdict(self.weights)
        drawn = [self.problem.as_json(), self.backend, self.device, self.seed, self.max_elements]
        parts = [*drawn, dict(self.env), weights]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        data = json.loads(text)
        lookup = Lookup(**{name: tuple(cells) for name, cells in data["lookup"].items()})
        counts, problem = tuple(data["counts"]), Problem.from_json(data["problem"])
        weights = None if data["weights"] is None else Weights(**data["weights"])
        plain = {"counts": counts, "problem": problem, "lookup": lookup, "weights": weights}
        return cls(**{**data, **plain, "candidates": tuple(data["candidates"])})
