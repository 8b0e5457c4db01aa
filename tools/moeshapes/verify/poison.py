"""Poison: uninitialised memory filled with patterns that show where it is read.

PyTorch's own fill does not cover every type and uses one pattern; its deterministic mode also swaps kernels. So a
dispatch mode fills what every `empty*` returns, as bytes. NaN patterns where the type has a NaN, else one of two finite
patterns, which only a second run with the other one tells from data.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Pattern(Enum):
    """What a run's uninitialised memory holds. FIRST and SECOND spare index types, INDEX fills nothing else.

    SECOND is finite as fp4 and int8, and NaN where bytes turn out to be e8m0 scales.
    """

    FIRST = 0x77
    SECOND = 0xFF
    INDEX = 0x7F


_INDEX_TYPES = frozenset({torch.int16, torch.int32, torch.int64})
_NAN_BYTE = {torch.float8_e4m3fnuz: 0x80, torch.float8_e5m2fnuz: 0x80}
_OF_TORCH = "aten"
_EMPTY_OPERATORS = frozenset(
    f"{_OF_TORCH}::{name}"
    for name in ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)


class Poison(TorchDispatchMode):
    """Fills uninitialised tensors made while it is active, and counts them in `filled`."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pattern = pattern
        self.filled = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and to skip the compiler PyTorch would first import it: two seconds a worker."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = self._called(func, args, kwargs or {})
        if func._schema.name in _EMPTY_OPERATORS and isinstance(result, Tensor) and result.numel():
            self._fill(result)
        return result

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operator returns. PyTorch turns a mode off while an operator runs, and a library may make one of all
        that it does, as AITER does of fused_moe: within operators that are not PyTorch's own, poison stays active.
        """
        device = None if func.namespace == _OF_TORCH else _device_of(args, kwargs)
        if device is None:
            return func(*args, **kwargs)
        key = getattr(torch._C.DispatchKey, torch._C._dispatch_key_for_device(device.type))
        with self:
            return func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)

    def _fill(self, tensor: Tensor) -> None:
        byte = fill_byte(tensor.dtype, self.pattern)
        if byte is None:
            return
        storage = tensor.untyped_storage()
        torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).fill_(byte)
        self.filled += 1


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
    """Where an operator runs: on the GPU if one of its tensors is there. None where it is given no tensor."""
    devices = {leaf.device for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
    return max(devices, key=lambda device: device.type != "cpu", default=None)


def poisoned(pattern: Pattern | None) -> AbstractContextManager[object]:
    """Poison of that pattern; nothing for None."""
    return nullcontext() if pattern is None else Poison(pattern)


def fill_byte(dtype: torch.dtype, pattern: Pattern) -> int | None:
    """The byte that fills memory of a type, None where the pattern leaves it alone. 0xFF is NaN in all other floats."""
    if dtype in _INDEX_TYPES or pattern is Pattern.INDEX:
        return int(pattern.value) if dtype in _INDEX_TYPES and pattern is Pattern.INDEX else None
    if dtype is torch.bool:
        return None
    if (dtype.is_floating_point or dtype.is_complex) and "float4" not in str(dtype):
        return _NAN_BYTE.get(dtype, 0xFF)
    return int(pattern.value)
