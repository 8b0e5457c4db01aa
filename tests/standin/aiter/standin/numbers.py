"""The number formats from their definitions: what a code is worth, and what rounding to codes and back gives.

Decoding goes by tables that are worked out from sign, exponent and mantissa; encoding by ml_dtypes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

_BIAS = 127
_NAN_BYTE = 255


@dataclass(frozen=True)
class FloatFormat:
    """A format of at most eight bits. `unsigned_zero`: 0x80 is NaN, as in fnuz; `top`: the largest value."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    top: float
    ml_dtype: type
    unsigned_zero: bool = False


FP4 = FloatFormat(2, 1, 1, 6.0, ml_dtypes.float4_e2m1fn)
FP8 = FloatFormat(4, 3, 7, 448.0, ml_dtypes.float8_e4m3fn)
FP8_FNUZ = FloatFormat(4, 3, 8, 240.0, ml_dtypes.float8_e4m3fnuz, unsigned_zero=True)


@cache
def values_of(form: FloatFormat) -> Tensor:
    """What each code is worth, fp32 `[2^bits]`."""
    bits = 1 + form.exponent_bits + form.mantissa_bits
    return torch.tensor([_value(code, form) for code in range(1 << bits)], dtype=torch.float32)


def _value(code: int, form: FloatFormat) -> float:
    sign = -1.0 if code >> (form.exponent_bits + form.mantissa_bits) else 1.0
    exponent = code >> form.mantissa_bits & ((1 << form.exponent_bits) - 1)
    mantissa = code & ((1 << form.mantissa_bits) - 1)
    if form.unsigned_zero and sign < 0 and not exponent and not mantissa:
        return float("nan")
    fraction = mantissa / (1 << form.mantissa_bits)
    value = (1 + fraction) * 2.0 ** (exponent - form.bias) if exponent else fraction * 2.0 ** (1 - form.bias)
    return sign * value if value <= form.top else float("nan")


@cache
def e8m0_values() -> Tensor:
    """What each scale byte is worth, fp32 `[256]`: 2^(byte - 127), 255 is NaN."""
    return torch.tensor([2.0 ** (byte - _BIAS) for byte in range(_NAN_BYTE)] + [float("nan")], dtype=torch.float32)


def decode(codes: Tensor, form: FloatFormat) -> Tensor:
    """Codes, one a byte, to fp32."""
    return values_of(form)[codes.view(torch.uint8).int()]


def decode_fp4(packed: Tensor) -> Tensor:
    """`[..., K/2]` bytes to fp32 `[..., K]`; the low nibble is the even index."""
    packed = packed.view(torch.uint8)
    return decode(torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2), FP4)


def encode_fp4(x: Tensor) -> Tensor:
    """fp32 `[..., K]`, scaled already, to bytes `[..., K/2]`."""
    held: np.ndarray = x.clamp(-FP4.top, FP4.top).contiguous().numpy()
    codes = torch.from_numpy(held.astype(FP4.ml_dtype).view(np.uint8).copy())
    return codes[..., 0::2] | codes[..., 1::2] << 4


def decode_e8m0(scales: Tensor) -> Tensor:
    return e8m0_values()[scales.view(torch.uint8).int()]


# --- rounding


@dataclass(frozen=True)
class Rounding:
    """How values are rounded to codes. number: `fp4`, `fp8`, `fp8_fnuz`, `int8`, or empty for not at all.

    group: `1x32` or `1x8` (e8m0 scale), `1x128`, `row` or `tensor` (fp32 scale). fused: the e8m0 rule of FlyDSL's
    stage-1 epilogue rather than the smallest power of two that fits.
    """

    number: str = ""
    group: str = ""
    fused: bool = False


_FORMS = {"fp4": FP4, "fp8": FP8, "fp8_fnuz": FP8_FNUZ}
_INT8_TOP = 127.0
_E8M0_GROUPS = {"1x32": 32, "1x8": 8}
_FUSED_LEAD = {"fp4": 2, "fp8": 8, "fp8_fnuz": 8}


def rounded(x: Tensor, how: Rounding) -> Tensor:
    """`x` `[R, K]` fp32 through codes and back, fp32."""
    if not how.number:
        return x
    if how.group in _E8M0_GROUPS:
        return _rounded_mx(x, how)
    width = {"1x128": 128, "row": x.shape[1], "tensor": x.numel()}[how.group]
    blocks = x.reshape(-1, width)
    scale = blocks.abs().amax(dim=1, keepdim=True) / _top(how.number)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (_through_codes(blocks / scale, how.number) * scale).view(x.shape)


def _rounded_mx(x: Tensor, how: Rounding) -> Tensor:
    blocks = x.reshape(-1, _E8M0_GROUPS[how.group])
    scale = decode_e8m0(scale_byte(blocks.abs().amax(dim=1, keepdim=True), how))
    return (_through_codes(blocks / scale, how.number) * scale).view(x.shape)


def scale_byte(amax: Tensor, how: Rounding) -> Tensor:
    """The e8m0 byte of blocks by their largest magnitude: 0 for zero, 255 for what is not finite."""
    if how.fused:
        fraction, power = torch.frexp(amax)
        power = power - 1 + (fraction >= 0.75).int() - _FUSED_LEAD[how.number]
    else:
        fraction, power = torch.frexp(amax / _top(how.number))
        power = (power - (fraction == 0.5).int()).clamp(min=1 - _BIAS)
    byte = (power + _BIAS).clamp(0, _NAN_BYTE - 1).masked_fill(fraction == 0, 0)
    return torch.where(amax.isfinite(), byte, torch.full_like(byte, _NAN_BYTE)).to(torch.uint8)


def _top(number: str) -> float:
    return _INT8_TOP if number == "int8" else _FORMS[number].top


def _through_codes(x: Tensor, number: str) -> Tensor:
    held = x.clamp(-_top(number), _top(number))
    if number == "int8":
        return held.trunc()
    codes: np.ndarray = held.contiguous().numpy().astype(_FORMS[number].ml_dtype)
    return torch.from_numpy(codes.astype(np.float32))
