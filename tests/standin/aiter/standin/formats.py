"""Short names of operand dtypes, whichever fp8 the device has."""

from __future__ import annotations

import torch

_NAMES: dict[torch.dtype, str] = {
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e4m3fnuz: "fp8",
    torch.float4_e2m1fn_x2: "fp4",
    torch.int8: "int8",
}


def short(dtype: torch.dtype) -> str:
    """`bf16`, `fp8`, `fp4` or `int8`; other dtypes as torch spells them."""
    return _NAMES.get(dtype, str(dtype))
