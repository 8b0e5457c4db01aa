"""Conversions to the narrow formats, for all Triton kernels here."""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

INTERPRETED = tl.constexpr(knobs.runtime.interpret)
"""Triton's interpreter multiplies bf16 as integers and rounds bf16 and fp8 its own way: there, kernels do it themselves."""

TO_BF16 = tl.constexpr(0)
TO_FP8 = tl.constexpr(1)
TO_FP4 = tl.constexpr(2)


@triton.jit
def to_bf16(x):
    """Nearest bf16, ties to even."""
    if INTERPRETED:
        bits = x.to(tl.int32, bitcast=True)
        nearest = bits + 0x7FFF + ((bits >> 16) & 1)
        x = tl.where(x == x, nearest, bits).to(tl.float32, bitcast=True)
    return x.to(tl.bfloat16)


@triton.jit
def to_fp8(x):
    """Nearest e4m3fn of values within its range, ties to even, as bytes."""
    if INTERPRETED:
        exponent = tl.maximum((x.to(tl.int32, bitcast=True) >> 23) & 0xFF, 121)
        # Adding 1.5 * 2^23 steps of the format's own grid leaves the nearest grid point.
        shift = ((exponent + 20) << 23).to(tl.float32, bitcast=True) * 1.5
        x = (x + shift) - shift
        return tl.where(x == x, x.to(tl.float8e4nv).to(tl.uint8, bitcast=True), 0x7F)
    return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@triton.jit
def larger(a, b):
    """The larger, NaN where one of them is: a quantiser must not swallow it."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def largest(values, AXIS: tl.constexpr):
    """The largest magnitude along an axis, NaN where there is one."""
    return tl.reduce(tl.abs(values), AXIS, larger)


@triton.jit
def _block_exponent(amax, TO: tl.constexpr):
    """The biased e8m0 exponent of a block: that of amax / max, rounded up (contract 6.3)."""
    top: tl.constexpr = 6.0 if TO == TO_FP4 else 448.0
    bits = tl.div_rn(amax, top).to(tl.int32, bitcast=True)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(tl.int32)
    return tl.where(amax < float("inf"), tl.minimum(exponent, 254), 255)


@triton.jit
def _fp4_code(x):
    """e2m1 codes of fp32 values: nearest, ties to even, saturating; uint8."""
    m = tl.abs(x)
    code = (m > 0.25).to(tl.int32) + (m >= 0.75).to(tl.int32) + (m > 1.25).to(tl.int32) + (m >= 1.75).to(tl.int32)
    code += (m > 2.5).to(tl.int32) + (m >= 3.5).to(tl.int32) + (m > 5.0).to(tl.int32)
    return (code | ((x.to(tl.int32, bitcast=True) >> 28) & 8)).to(tl.uint8)


@triton.jit
def store_quantised(
    values, codes, scales, row, row_live, first_column, columns, TO: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Writes `[BM, BN]` values as MX codes and scales into row-major `[rows, columns]`."""
    grouped = tl.reshape(values, (BM, BN // 32, 32))
    exponent = _block_exponent(largest(grouped, 2), TO)
    # 2^-(exponent - 127) as a product of two factors: one alone leaves fp32's range at both ends.
    half = (127 - exponent) // 2
    other = 127 - exponent - half
    factor = ((half + 127) << 23).to(tl.float32, bitcast=True)[:, :, None]
    factor2 = ((other + 127) << 23).to(tl.float32, bitcast=True)[:, :, None]
    scaled = tl.reshape(grouped * factor * factor2, (BM, BN))
    block = first_column // 32 + tl.arange(0, BN // 32)
    in_scales = row_live[:, None] & (block < columns // 32)[None, :]
    tl.store(scales + row[:, None] * (columns // 32) + block[None, :], exponent.to(tl.uint8), in_scales)
    if TO == TO_FP8:
        column = first_column + tl.arange(0, BN)
        inside = row_live[:, None] & (column < columns)[None, :]
        clamped = tl.minimum(tl.maximum(scaled, -448.0), 448.0)
        tl.store(codes + row[:, None] * columns + column[None, :], to_fp8(clamped), inside)
    else:
        low, high = tl.split(tl.reshape(_fp4_code(scaled), (BM, BN // 2, 2)))
        column = first_column // 2 + tl.arange(0, BN // 2)
        inside = row_live[:, None] & (column < columns // 2)[None, :]
        tl.store(codes + row[:, None] * (columns // 2) + column[None, :], low | (high << 4), inside)
