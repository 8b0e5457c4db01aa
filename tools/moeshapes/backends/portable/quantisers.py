"""Activations quantised on the device by the quantisers' own rules (contract 6.3), bit for bit as quant.py does."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from moeshapes.backends.portable.formats import TO_FP4, TO_FP8, larger, largest, store_quantised, to_fp8
from moeshapes.backends.portable.launch import launch
from moeshapes.quant import Quantised, Spec, as_bytes, fp8_dtype
from moeshapes.recipe import Format, QType

_MX_TILE = (4, 512)
_ROW_TILE, _WIDE_BLOCKS = 1024, 8


def intermediate_buffers(
    rows: int, columns: int, spec: Spec | None, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Uninitialised codes and scales for MX values, or for None a bf16 matrix `[rows, columns]`."""
    if spec is None:
        return torch.empty((rows, columns), dtype=torch.bfloat16, device=device), None
    scales = torch.empty((rows, columns // 32), dtype=torch.uint8, device=device)
    if spec.number is Format.FP4:
        return torch.empty((rows, columns // 2), dtype=torch.uint8, device=device), scales
    return torch.empty((rows, columns), dtype=fp8_dtype(spec.fnuz), device=device), scales


def quantise_activations(x: Tensor, spec: Spec) -> Quantised:
    """Quantises bf16 `[rows, K]`, contiguous."""
    if spec.is_plain:
        return Quantised(spec, x, None)
    rows, columns = x.shape
    if spec.q_type is QType.PER_1X32:
        codes, scales = intermediate_buffers(rows, columns, spec, x.device)
        block_m, block_n = _MX_TILE
        grid = (triton.cdiv(rows, block_m), triton.cdiv(columns, block_n))
        to = TO_FP4 if spec.number is Format.FP4 else TO_FP8
        launch(quantise_mx, grid, x, as_bytes(codes), scales, rows, columns, TO=to, BM=block_m, BN=block_n)
        return Quantised(spec, codes, scales)
    codes = torch.empty((rows, columns), dtype=fp8_dtype(spec.fnuz), device=x.device)
    wide = spec.q_type is QType.PER_1X128
    scales = torch.empty((rows, columns // 128 if wide else 1), dtype=torch.float32, device=x.device)
    if wide:
        grid = (rows, triton.cdiv(columns // 128, _WIDE_BLOCKS))
        launch(quantise_wide, grid, x, as_bytes(codes), scales, columns, BLOCKS=_WIDE_BLOCKS)
    else:
        launch(quantise_rows, (rows,), x, as_bytes(codes), scales, columns, BN=_ROW_TILE)
    return Quantised(spec, codes, scales)


@triton.jit
def quantise_mx(x, codes, scales, rows, columns, TO: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """bf16 `[rows, columns]` to MX codes and scales, by the quantiser's own rule."""
    row = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    live = row < rows
    mask = live[:, None] & (column < columns)[None, :]
    values = tl.load(x + row[:, None] * columns + column[None, :], mask, other=0).to(tl.float32)
    store_quantised(values, codes, scales, row, live, tl.program_id(1) * BN, columns, TO, BM, BN)


@triton.jit
def _fp8_scale(amax):
    """fp32: the largest magnitude over e4m3fn's, 1 for zeros."""
    scale = tl.div_rn(amax, 448.0)
    return tl.where(scale == 0, 1.0, scale)


@triton.jit
def _fp8_code(values, scale):
    return to_fp8(tl.clamp(tl.div_rn(values, scale), -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def quantise_wide(x, codes, scales, columns, BLOCKS: tl.constexpr):
    """bf16 `[rows, columns]` to fp8 with an fp32 scale a 1x128 block, `[rows, columns / 128]`."""
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)
    at = block[:, None] * 128 + tl.arange(0, 128)[None, :]
    inside = block < columns // 128
    values = tl.load(x + row * columns + at, inside[:, None], other=0).to(tl.float32)
    scale = _fp8_scale(largest(values, 1))
    tl.store(scales + row * (columns // 128) + block, scale, inside)
    tl.store(
        codes + row * columns + at, _fp8_code(values, tl.broadcast_to(scale[:, None], values.shape)), inside[:, None]
    )


@triton.jit
def quantise_rows(x, codes, scales, columns, BN: tl.constexpr):
    """bf16 `[rows, columns]` to fp8 with an fp32 scale a row, `[rows, 1]`."""
    row = tl.program_id(0).to(tl.int64)
    x += row * columns
    codes += row * columns
    amax = tl.zeros((BN,), tl.float32)
    for first in range(0, columns, BN):
        at = first + tl.arange(0, BN)
        amax = larger(amax, tl.abs(tl.load(x + at, at < columns, other=0).to(tl.float32)))
    scale = _fp8_scale(largest(amax, 0))
    tl.store(scales + row, scale)
    for first in range(0, columns, BN):
        at = first + tl.arange(0, BN)
        values = tl.load(x + at, at < columns, other=0).to(tl.float32)
        tl.store(codes + at, _fp8_code(values, tl.zeros_like(values) + scale), at < columns)
