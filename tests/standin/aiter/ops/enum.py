"""AITER's enums (csrc/include/aiter_enum.h). As pybind11's, they equal no integer and no string."""

from __future__ import annotations

from enum import Enum


class ActivationType(Enum):
    No = -1
    Silu = 0
    Gelu = 1
    Swiglu = 2
    Situv2 = 3

    def __int__(self) -> int:
        return int(self.value)


class QuantType(Enum):
    No = 0
    per_Tensor = 1  # noqa: N815
    per_Token = 2  # noqa: N815
    per_1x32 = 3
    per_1x128 = 4
    per_128x128 = 5
    per_256x128 = 6
    per_1024x128 = 7

    def __int__(self) -> int:
        return int(self.value)
