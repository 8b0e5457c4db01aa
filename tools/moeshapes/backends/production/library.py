"""The parts of AITER that the backend calls, and the caches that it keeps for as long as a process lives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

_OTHER_CACHES = {
    "aiter.ops.flydsl.moe_kernels": "_warn_tile_override",
    "aiter.fused_moe": "_mxfp4_scale_u8",
}
"""Caches that not every AITER has. FlyDSL says once a process that it runs another tile than is named; and of the last
2048 tensors whose bytes it was given, weights among them, none is given back.
"""


@dataclass(frozen=True)
class Library:
    """AITER's modules. `fused_moe` is the module, not the function in it."""

    aiter: ModuleType
    fused_moe: ModuleType
    core: ModuleType
    shuffle: ModuleType
    fp4_utils: ModuleType

    @property
    def dtypes(self) -> Any:
        return self.aiter.dtypes

    def activation(self, name: str) -> Any:
        """AITER's enum value of `silu`, `gelu`, `swiglu` or `situv2`."""
        return getattr(self.aiter.ActivationType, name.capitalize())

    def q_type(self, name: str) -> Any:
        """AITER's enum value of `per_1x32`."""
        return getattr(self.aiter.QuantType, name)

    @contextmanager
    def fresh_caches(self) -> Iterator[None]:
        """What AITER has cached of its tables is forgotten, before and afterwards."""
        self._forget()
        try:
            yield
        finally:
            self._forget()

    def _forget(self) -> None:
        """The three caches that hide a change of tables (contract 1.4), the warnings given, and the tensors held."""
        self.core.AITER_CONFIGS.get_config_file.cache_clear()
        self.fused_moe.cfg_2stages = None  # type: ignore[attr-defined]
        self.fused_moe.get_2stage_cfgs.cache_clear()
        for module, name in _OTHER_CACHES.items():
            cached = getattr(sys.modules.get(module), name, None)
            if cached is not None:
                cached.cache_clear()


def load() -> Library:
    """Imports AITER, in the environment that there is now. Raises ImportError where it cannot be."""
    modules = ("aiter", "aiter.fused_moe", "aiter.jit.core", "aiter.ops.shuffle", "aiter.utility.fp4_utils")
    return Library(*(import_module(name) for name in modules))
