"""Where a subject is run: which backend, on which device, and why not on another."""

from __future__ import annotations

from dataclasses import dataclass

from moeshapes.recipe import QType
from moeshapes.row import Key
from moeshapes.verify.gpus import NO_GPUS, Gpu, LocalGpus, kind_of

AUTO, EMULATE, PORTABLE, PRODUCTION = BACKENDS = ("auto", "emulate", "portable", "production")
EMULATED_UP_TO, ON_GPU_UP_TO = 256, 4096
"""The largest bucket that is emulated, and on a GPU the largest whose references are of every token."""


@dataclass(frozen=True)
class Placement:
    """The backend and, where it is not emulated, the GPU. `note`: why it is emulated. `refused`: why it is not run."""

    backend: str
    gpu: Gpu | None = None
    note: str = ""
    refused: str = ""


@dataclass(frozen=True)
class Site:
    """The backend that is asked for, and the GPUs that there are."""

    backend: str = AUTO
    local: LocalGpus = NO_GPUS

    def place(self, key: Key, portable: bool) -> Placement:
        """Where a row of `key`, or what runs without one, is verified: by the portable backend's kernels or AITER's."""
        if self.backend == EMULATE:
            return _emulated(key)
        backend = PORTABLE if portable else PRODUCTION
        if self.backend not in (AUTO, backend):
            return Placement(self.backend, refused=_NOT_OF[self.backend])
        kind = kind_of(key.gfx, key.cu_num)
        gpu = self.local.of_kind(kind)
        missing = self._missing(kind) if gpu is None else _lacks(gpu) if backend == PRODUCTION else ""
        if gpu is not None and not missing:
            return _on_gpu(key, gpu, backend)
        if self.backend == backend:
            return Placement(backend, refused=missing)
        # That AITER's rows are emulated goes without saying where there is none of its GPUs.
        return _emulated(key, missing if backend == PORTABLE or gpu is not None else "")

    def has_gpu(self, key: Key) -> bool:
        """Whether a GPU of the kind that the key is for is here."""
        return self.local.of_kind(kind_of(key.gfx, key.cu_num)) is not None

    def _missing(self, kind: str) -> str:
        return f"no {kind} GPU is here" + (f": {self.local.problem}" if self.local.problem else "")


WITHOUT_GPU = Site()
_NOT_OF = {PORTABLE: "not a row of the portable kernels", PRODUCTION: "a row of the portable kernels, not of AITER's"}


def _lacks(gpu: Gpu) -> str:
    return "" if gpu.aiter else f"AITER is not installed beside the {gpu.kind} GPU"


def _on_gpu(key: Key, gpu: Gpu, backend: str) -> Placement:
    whole = key.shape.q_type == str(QType.PER_TENSOR)
    too_large = whole and key.shape.token > ON_GPU_UP_TO
    limit = f"judged up to {ON_GPU_UP_TO} tokens: one scale follows from all of them" if too_large else ""
    return Placement(backend, gpu, refused=limit)


def _emulated(key: Key, note: str = "") -> Placement:
    too_large = key.shape.token > EMULATED_UP_TO
    limit = f"emulated up to {EMULATED_UP_TO} tokens; this bucket needs a GPU" if too_large else ""
    return Placement(EMULATE, note=note, refused=limit)
