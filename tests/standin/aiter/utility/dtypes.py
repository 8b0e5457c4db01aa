"""AITER's names for torch's dtypes; `fp8` is that of the device at import."""

from __future__ import annotations

import torch

from ..jit.utils.chip_info import get_gfx_runtime


def fp8_of_device() -> torch.dtype:
    return torch.float8_e4m3fnuz if get_gfx_runtime() == "gfx942" else torch.float8_e4m3fn


fp8 = fp8_of_device()
fp8_e8m0 = torch.float8_e8m0fnu
fp4x2 = torch.float4_e2m1fn_x2
i4x2: torch.dtype = torch.int4  # type: ignore[attr-defined,unused-ignore]
fp16, bf16, fp32 = torch.float16, torch.bfloat16, torch.float32
i8, i16, i32, i64 = torch.int8, torch.int16, torch.int32, torch.int64
u8, u32, u64 = torch.uint8, torch.uint32, torch.uint64

d_dtypes = {
    "fp8": fp8, "fp8_e8m0": fp8_e8m0, "fp16": fp16, "bf16": bf16, "fp32": fp32, "i4x2": i4x2, "fp4x2": fp4x2,
    "u32": u32, "i32": i32, "i16": i16, "i8": i8, "u8": u8, "i64": i64, "u64": u64,
}  # fmt: skip
