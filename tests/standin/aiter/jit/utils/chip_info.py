"""The device, as the stand-in pretends. Asked once a process each, as AITER asks rocminfo."""

from __future__ import annotations

import functools
import os

from ...standin.settings import SETTINGS

_GFX_OF_CU_NUM = {256: "gfx950", 80: "gfx942", 304: "gfx942"}


@functools.lru_cache(maxsize=1)
def get_gfx() -> str:
    """The architecture to build for: the last of GPU_ARCHS, else the device's."""
    named = os.getenv("GPU_ARCHS", "native")
    return SETTINGS.gfx if named == "native" else named.split(";")[-1]


@functools.lru_cache(maxsize=1)
def get_gfx_runtime() -> str:
    """The device's architecture, whatever GPU_ARCHS says."""
    return SETTINGS.gfx


@functools.lru_cache(maxsize=1)
def get_cu_num() -> int:
    """Compute units: the variable CU_NUM, else the device's."""
    return int(os.getenv("CU_NUM", "0")) or SETTINGS.cu_num


def gfx_from_cu_num(cu_num: object) -> str:
    """The architecture of a row that does not say it."""
    try:
        number = int(cu_num)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return get_gfx_runtime()
    return _GFX_OF_CU_NUM.get(number) or get_gfx_runtime()
