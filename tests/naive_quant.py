"""Quantisers and their inverses a second time, in numpy and ml_dtypes, from contract 6.3 alone.

Codes are whole numbers, one an element (bit patterns; int8 and int4 as values); scales are e8m0 bytes or numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TOP = {"fp4": 6.0, "fp8": 448.0, "fp8_fnuz": 240.0, "int8": 127.0, "int4": 7.0}
DTYPE = {"fp4": ml_dtypes.float4_e2m1fn, "fp8": ml_dtypes.float8_e4m3fn, "fp8_fnuz": ml_dtypes.float8_e4m3fnuz}
bf16 = ml_dtypes.bfloat16
_FUSED_LEAD = {"fp4": 2, "fp8": 8}


@dataclass(frozen=True)
class Block:
    """One scale and the codes under it."""

    codes: Array
    scale: float
    byte: int | None = None


def round_up_byte(amax: float, number: str) -> int:
    """The smallest power of two that brings amax within the format, by exponents alone; 255 for no finite amax."""
    if not np.isfinite(amax):
        return 255
    quotient = np.float32(amax) / np.float32(TOP[number])
    if quotient == 0:
        return 0
    fraction, exponent = np.frexp(amax)
    top_fraction, top_exponent = np.frexp(TOP[number])
    power = int(exponent) - int(top_exponent) + int(fraction > top_fraction)
    return max(power + 127, 1)


def fused_byte(amax: float, number: str) -> int:
    """amax rounded to the nearest power of two, half a binade going up, over that of the format's top binade."""
    if not np.isfinite(amax):
        return 255
    fraction, exponent = np.frexp(amax)
    power = int(exponent) - 1 + int(fraction >= 0.75) - _FUSED_LEAD[number]
    return max(power + 127, 0) if amax else 0


def byte_value(byte: int) -> float:
    return float(np.array(byte, np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float64))


def quantise_mx(block: Array, number: str, fused: bool = False) -> Block:
    """A 1x32 block under an e8m0 scale."""
    byte = (fused_byte if fused else round_up_byte)(_amax(block), number)
    scale = byte_value(byte)
    return Block(encode((block.astype(np.float64) / scale).astype(np.float32), number), scale, byte)


def quantise_wide(block: Array, number: str) -> Block:
    """Any block under an fp32 scale: a row, a tensor, 128 of a row, 128x128."""
    scale = np.float32(_amax(block)) / np.float32(TOP[number])
    scale = np.float32(1) if scale == 0 else scale
    return Block(encode(block / scale, number), float(scale))


def quantise_int4(block: Array) -> Block:
    """A group of 32 under a bf16 scale, each step rounded to bf16."""
    values = block.astype(bf16)
    amax = np.maximum(np.abs(values).max(), np.float32(1e-6).astype(bf16))
    scale = (np.float32(amax) / np.float32(7)).astype(bf16)
    ratio = (values.astype(np.float32) / np.float32(scale)).astype(bf16).astype(np.float32)
    return Block(np.clip(np.rint(ratio), -7, 7).astype(np.int64), float(scale))


def encode(values: Array, number: str) -> Array:
    """fp32 values within the format's reach as codes."""
    held = np.clip(values, -TOP[number], TOP[number])
    if number == "int8":
        return np.asarray(np.trunc(held), np.int64)
    codes: Array = held.astype(np.float32).astype(DTYPE[number]).view(np.uint8)
    return codes.astype(np.int64)


def unpacked(stored: Array, number: str) -> Array:
    """Codes from stored bytes: two a byte for fp4 and int4, the even index in the low nibble."""
    if number not in ("fp4", "int4"):
        return stored.view(np.int8 if number == "int8" else np.uint8).astype(np.int64)
    nibbles = np.stack((stored & 15, stored >> 4), axis=-1).reshape(*stored.shape[:-1], -1).astype(np.int64)
    return np.where(nibbles > 7, nibbles - 16, nibbles) if number == "int4" else nibbles


def values_of(codes: Array, number: str) -> Array:
    """Codes as fp64 values, before their scale."""
    if number in ("int8", "int4", "bf16"):
        return codes.astype(np.float64)
    values: Array = codes.astype(np.uint8).view(DTYPE[number])
    return values.astype(np.float64)


def _amax(block: Array) -> float:
    return float(np.abs(block).max())


def rounded_trip(x: Array, number: str, q_type: str, fused: bool = False) -> Array:
    """`x` `[M, K]` quantised and read back in fp64. q_type as AITER spells it; bf16 only rounds."""
    x = x.astype(np.float32)
    if number == "bf16":
        return x.astype(bf16).astype(np.float64)
    if q_type == "per_Tensor":
        return _read_back(x, quantise_wide(x, number), number)
    width = {"per_1x32": 32, "per_1x128": 128, "per_Token": x.shape[1]}[q_type]
    back = np.empty(x.shape)
    for row in range(x.shape[0]):
        for start in range(0, x.shape[1], width):
            block = x[row, start : start + width]
            found = quantise_mx(block, number, fused) if width == 32 else quantise_wide(block, number)
            back[row, start : start + width] = _read_back(block, found, number)
    return back


def _read_back(block: Array, found: Block, number: str) -> Array:
    return values_of(found.codes, number).reshape(block.shape) * found.scale
