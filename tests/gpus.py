"""GPUs that are not there, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moeshapes.verify.gpus import Gpu, LocalGpus


def gpu(index: int = 0, **changes: Any) -> Gpu:
    """An H200, but for what is changed."""
    plain = Gpu(index, "sm_90", 132, board="a board", memory=150 << 30, driver="570.1", triton="3.9.0")
    return replace(plain, **changes)


def local(*gpus: Gpu) -> LocalGpus:
    return LocalGpus(gpus)
