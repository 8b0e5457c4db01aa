"""MX scales and fp4 as AITER's torch utilities give them: contract 6.3's round-up rule alone."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.shuffle import shuffle_scale
from ..standin.numbers import FP8, FP8_FNUZ, FloatFormat, Rounding, decode_e8m0, decode_fp4, encode_fp4, scale_byte
from ..standin.refusal import require
from . import dtypes

ROUND_UP = 1
"""AITER's default of its four rules, as `MxScaleRoundMode`."""
_NUMBER_OF_DTYPE = {0: "fp4", 1: "fp8", 2: "fp8_fnuz"}
"""AITER's `MxDtype`."""


def f32_to_mxfp4(x: Tensor) -> Tensor:
    """fp32 `[..., K]`, scaled already, to packed codes `[..., K/2]`."""
    return encode_fp4(x).view(dtypes.fp4x2)


def mxfp4_to_f32(x: Tensor) -> Tensor:
    """Packed codes `[..., K/2]` to fp32 `[..., K]`, unscaled."""
    return decode_fp4(x)


def f32_to_mx_e8m0_scale(amax: Tensor, *, mode: int = ROUND_UP, dtype: int = 0) -> Tensor:
    """The e8m0 scale of blocks by their largest magnitude."""
    require(int(mode) == ROUND_UP, f"f32_to_mx_e8m0_scale: the stand-in has round-up alone, not mode {mode}")
    return scale_byte(amax, Rounding(_NUMBER_OF_DTYPE[int(dtype)], "1x32")).view(dtypes.fp8_e8m0)


def e8m0_to_f32(scale_e8m0_biased: Tensor) -> Tensor:
    """2^(byte - 127), NaN for 255."""
    return decode_e8m0(scale_e8m0_biased)


def e8m0_shuffle(scale: Tensor | None) -> Tensor | None:
    """`[E * N, K / 32]` to the kernels' order; None and fp32 pass through."""
    return shuffle_scale(scale)


def form_of_fp8() -> FloatFormat:
    """The fp8 of the device."""
    return FP8_FNUZ if dtypes.fp8 == torch.float8_e4m3fnuz else FP8
