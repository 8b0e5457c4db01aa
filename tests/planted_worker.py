"""A worker whose backends misbehave on rows of some token counts, otherwise the verifier's own; and pools of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

import torch
from torch import Tensor

from moeshapes.backends.base import Arm, Backend, Prepared
from moeshapes.verify import worker
from moeshapes.verify.gpus import Gpu
from moeshapes.verify.job import Job
from moeshapes.verify.lookup import NO_LOOKUP, Lookup
from moeshapes.verify.pool import Pool
from moeshapes.workload import Call, Layer

KILLED, ENDLESS, WILD, TOO_LARGE = 3, 7, 12, 17
"""The token counts of the rows on which a worker is killed, hangs, writes where it must not, and asks for too much."""
PLANTED = (KILLED, ENDLESS, WILD, TOO_LARGE)
FAULTS, NOTES = "PLANTED_FAULTS", "PLANTED_NOTES"
"""Environment variables: the token counts, with blanks between; a file that gets the id of each job that is begun."""


def kill(device: torch.device) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def never_end(device: torch.device) -> None:
    if device.type == "cpu":
        while True:
            time.sleep(0.1)
    from faulty_kernels import spin_for_ever

    spin_for_ever[(1,)](torch.zeros(1, dtype=torch.int32, device=device))


def write_wildly(device: torch.device) -> None:
    if device.type == "cpu":
        os.kill(os.getpid(), signal.SIGSEGV)
    from faulty_kernels import write_far_off

    write_far_off[(1,)](torch.zeros(1, dtype=torch.int32, device=device), 1 << 40)


def allocate_too_much(device: torch.device) -> None:
    torch.empty(1 << 50, dtype=torch.uint8, device=device)


MISDEEDS: dict[int, Callable[[torch.device], None]] = {
    KILLED: kill,
    ENDLESS: never_end,
    WILD: write_wildly,
    TOO_LARGE: allocate_too_much,
}


@dataclass
class PlantedArm:
    """An arm that misbehaves before it computes."""

    arm: Arm
    misdeed: Callable[[torch.device], None]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.arm, name)

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        self.misdeed(call.activations.device)
        return self.arm.run(call, out)


@dataclass
class PlantedLayer:
    prepared: Prepared
    faults: Sequence[int]

    def arm(self, launch: Mapping[str, Any] | None, token: int, lookup: Lookup = NO_LOOKUP) -> Any:
        arm = self.prepared.arm(launch, token, lookup)
        return PlantedArm(arm, MISDEEDS[token]) if token in self.faults else arm


class PlantedBackend:
    """A backend whose layers misbehave."""

    def __init__(self, backend: Backend, faults: Sequence[int]) -> None:
        self.backend = backend
        self.name, self.emulated = backend.name, backend.emulated
        self.faults = faults

    def prepare(self, layer: Layer) -> PlantedLayer:
        return PlantedLayer(self.backend.prepare(layer), self.faults)


class _Noting:
    """stdin, each job's id noted as it is begun."""

    def __init__(self, stream: TextIO, notes: Path | None) -> None:
        self.stream = stream
        self.notes = notes

    def __iter__(self) -> _Noting:
        return self

    def __next__(self) -> str:
        line = next(self.stream)
        if self.notes:
            with self.notes.open("a", encoding="utf-8") as notes:
                notes.write(f"{Job.from_json(line).id}\n")
        return line


def planted_pool(
    gpus: Sequence[Gpu] = (), limit_s: float = 20.0, build_limit_s: float = 60.0, workers: int = 2
) -> Pool:
    """A pool of this worker, whose faults the environment names."""
    return Pool(workers, 1, limit_s, _command, gpus, build_limit_s)


def _command(threads: int, gpu: int | None) -> list[str]:
    on_gpu = [] if gpu is None else ["--gpu", str(gpu)]
    return [sys.executable, str(Path(__file__).resolve()), "--threads", str(threads), *on_gpu]


def main() -> None:
    """worker.main with planted backends."""
    faults = [int(token) for token in os.environ.get(FAULTS, "").split()]
    notes, honest = os.environ.get(NOTES), worker.load_backend
    jobs = _Noting(sys.stdin, Path(notes) if notes else None)
    planted = patch.object(worker, "load_backend", lambda name: PlantedBackend(honest(name), faults))
    with patch.object(sys, "stdin", jobs), planted:
        worker.main()


if __name__ == "__main__":
    main()
