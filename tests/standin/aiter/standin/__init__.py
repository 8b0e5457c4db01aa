"""What no real AITER has: refusals, lies on request, another device, and an account of what was launched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .refusal import StandinRefused
from .settings import SETTINGS, known_lies
from .trace import Launch, forget, launched

__all__ = ["Launch", "StandinRefused", "forget", "launched", "lying", "pretend"]


def pretend(gfx: str, cu_num: int | None = None) -> None:
    """Another device from now on; what AITER has cached of the chip is forgotten, and nothing else."""
    from ..jit.utils import chip_info
    from ..utility import dtypes

    SETTINGS.gfx, SETTINGS.cu_num = gfx, cu_num or {"gfx942": 304}.get(gfx, 256)
    for cached in (chip_info.get_gfx, chip_info.get_gfx_runtime, chip_info.get_cu_num):
        cached.cache_clear()
    dtypes.fp8 = dtypes.d_dtypes["fp8"] = dtypes.fp8_of_device()


@contextmanager
def lying(*names: str) -> Iterator[None]:
    """Tells these lies meanwhile, beside those of the environment."""
    before = set(SETTINGS.lies)
    SETTINGS.lies |= known_lies(set(names))
    try:
        yield
    finally:
        SETTINGS.lies = before
