"""Triton kernels of the portable backend. Weights stay packed; both stages walk rows sorted by expert in tiles of BM.

Numbers come in one of four kinds, which decides how a K step is multiplied:
PLAIN bf16; ROW fp8 with one fp32 scale a row of activations and of weights; WIDE fp8 with fp32 scales a 1x128 and a 128x128 block;
MX e8m0 scales a 32-wide block, through `dot_scaled`, activations bf16, fp8 or fp4.
Every value of a padded column is computed and written: its weights are zero. The compiled kernels carry the name that rows give them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from moeshapes.backends.portable.formats import INTERPRETED, TO_BF16, TO_FP4, TO_FP8, store_quantised, to_bf16

PLAIN = tl.constexpr(0)
ROW = tl.constexpr(1)
WIDE = tl.constexpr(2)
MX = tl.constexpr(3)

COARSE_FROM = tl.constexpr(64)
"""Rows from which Triton multiplies fp8 by Hopper's wgmma, which adds products with 14 bits: a token in ten is then off by
more than it may be. Smaller tiles go through fp16, which holds every fp8 exactly, so larger ones are made to."""

SILU = tl.constexpr(0)
GELU = tl.constexpr(1)
SWIGLU = tl.constexpr(2)
SITUV2 = tl.constexpr(3)


@triton.jit
def _tile_at(base, index, row_stride, first, WIDTH: tl.constexpr):
    """Pointers `[len(index), WIDTH]` at columns first.. of the rows `index`."""
    return base + index[:, None] * row_stride + (first + tl.arange(0, WIDTH))[None, :]


@triton.jit
def _read(at, first, width, EVEN: tl.constexpr, WIDTH: tl.constexpr):
    """What `at` points at, zero from column `width` on; EVEN where there is no such column."""
    if EVEN:
        return tl.load(at)
    else:
        return tl.load(at, (first + tl.arange(0, WIDTH) < width)[None, :], other=0)


@triton.jit
def _read_codes(
    base,
    index,
    row_stride,
    k,
    k_elements,
    FORMAT: tl.constexpr,
    PER_BYTE: tl.constexpr,
    EVEN: tl.constexpr,
    BK: tl.constexpr,
):
    """A K step of the rows `index`: `[rows, BK / PER_BYTE]`."""
    width: tl.constexpr = BK // PER_BYTE
    first = k // PER_BYTE
    tile = _read(_tile_at(base, index, row_stride, first, width), first, k_elements // PER_BYTE, EVEN, width)
    if FORMAT == "e4m3":
        tile = tile.to(tl.float8e4nv, bitcast=True)
    return tile


@triton.jit
def _read_scales(base, index, row_stride, k, k_elements, KIND: tl.constexpr, EVEN: tl.constexpr, BK: tl.constexpr):
    """The scales of a K step: e8m0 `[rows, BK / 32]`, or fp32 `[rows]` of the 128 block that it is in."""
    if KIND == MX:
        width: tl.constexpr = BK // 32
        return _read(_tile_at(base, index, row_stride, k // 32, width), k // 32, k_elements // 32, EVEN, width)
    else:
        return tl.load(base + index * row_stride + k // 128)


@triton.jit
def _multiply(acc, a, a_scale, w, w_scale, KIND: tl.constexpr, A_FORMAT: tl.constexpr, W_FORMAT: tl.constexpr):
    """acc `[BM, BN]` + A W^T of one K step. A scale that is NaN gives Inf or NaN, which is as good a sign."""
    if KIND == MX:
        if A_FORMAT == "bf16":
            return tl.dot_scaled(a, None, "bf16", tl.trans(w), w_scale, W_FORMAT, acc, fast_math=True)
        else:
            return tl.dot_scaled(a, a_scale, A_FORMAT, tl.trans(w), w_scale, W_FORMAT, acc, fast_math=True)
    elif INTERPRETED:
        product = tl.dot(a.to(tl.float32), tl.trans(w.to(tl.float32)))
        return acc + (product * (a_scale[:, None] * w_scale[None, :]) if KIND == WIDE else product)
    else:
        if A_FORMAT == "e4m3" and acc.shape[0] >= COARSE_FROM:
            a, w = a.to(tl.float16), w.to(tl.float16)
        if KIND == WIDE:
            return acc + tl.dot(a, tl.trans(w)) * (a_scale[:, None] * w_scale[None, :])
        else:
            return tl.dot(a, tl.trans(w), acc)


@triton.jit
def _by_rows(acc, a_scale, row, w_scale, column, KIND: tl.constexpr):
    """Scales of whole rows, once all of K is added."""
    if KIND == ROW:
        return acc * (tl.load(a_scale + row)[:, None] * tl.load(w_scale + column)[None, :])
    else:
        return acc


@triton.jit
def _tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def _activated(gate, up, limit, alpha, beta, linear_beta, ACTIVATION: tl.constexpr, HAS_LIMIT: tl.constexpr):
    if HAS_LIMIT:
        gate = tl.minimum(gate, limit)
        up = tl.minimum(tl.maximum(up, -limit), limit)
    if ACTIVATION == SILU:
        return gate * tl.sigmoid(gate) * up
    elif ACTIVATION == GELU:
        return 0.5 * gate * (1 + tl.erf(gate * 0.7071067811865476)) * up
    elif ACTIVATION == SWIGLU:
        return gate * tl.sigmoid(alpha * gate) * (up + 1)
    else:
        return beta * _tanh(gate / beta) * tl.sigmoid(gate) * linear_beta * _tanh(up / linear_beta)


def _name(stage: int, specialisation: Any, end_of: Callable[[dict[str, Any]], str]) -> str:
    """The row's name for what was compiled, from its constants; launch.row_name adds warps and stages."""
    constants = {name: getattr(value, "value", value) for name, value in specialisation.constants.items()}
    short = {"bf16": "bf16", "e4m3": "fp8", "e2m1": "fp4"}
    a, w = short[constants["A_FORMAT"]], short[constants["W_FORMAT"]]
    tile = "x".join(str(constants[name]) for name in ("BM", "BN", "BK"))
    return f"triton_moe{stage}_a{a}_w{w}_bf16_t{tile}{end_of(constants)}"


def _name_of_stage1(specialisation: Any) -> str:
    ends = {TO_FP8.value: "_fp8", TO_FP4.value: "_fp4"}
    return _name(1, specialisation, lambda constants: ends.get(constants["TO"], ""))


def _name_of_stage2(specialisation: Any) -> str:
    return _name(2, specialisation, lambda constants: "_atomic" if constants["ATOMIC"] else "_reduce")


@triton.jit(repr=_name_of_stage1, do_not_specialize=["tokens", "experts", "topk"])
def stage1(
    a, a_scale, w, w_scale, bias, out, out_scale, ids, tile_expert, set_of, topk_weights,
    tokens, experts, model_dim, inter_dim, topk, a_row, a_scale_row, w_row, w_scale_row, w_set, w_scale_set,
    limit, alpha, beta, linear_beta,
    KIND: tl.constexpr, A_FORMAT: tl.constexpr, W_FORMAT: tl.constexpr, A_PER_BYTE: tl.constexpr, W_PER_BYTE: tl.constexpr,
    ACTIVATION: tl.constexpr, HAS_LIMIT: tl.constexpr, HAS_BIAS: tl.constexpr, DOWEIGHT: tl.constexpr,
    TO: tl.constexpr, EVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """act(x W_gate^T) * x W_up^T for a tile of BM sorted rows and BN columns of the intermediate.

    out: bf16 `[R, I]`, or MX codes with `out_scale` `[R, I/32]`. w: `[sets, 2I, K]`, gate rows then up rows. Strides in elements.
    """
    tile = tl.program_id(0)
    expert = tl.load(tile_expert + tile)
    if expert >= experts:
        return
    weights = tl.load(set_of + expert).to(tl.int64)
    at = tile * BM + tl.arange(0, BM)
    packed = tl.load(ids + at)
    token = packed & 0xFFFFFF
    live = token < tokens
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = column < inter_dim
    # Rows and columns that are not there read what is, and are not stored: unmasked loads are wider.
    row = tl.where(live, token, 0).to(tl.int64)
    gate_row = tl.where(inside, column, 0).to(tl.int64)
    up_row = gate_row + inter_dim
    w += weights * w_set
    w_scale += weights * w_scale_set
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
    for k in range(0, model_dim, BK):
        x = _read_codes(a, row, a_row, k, model_dim, A_FORMAT, A_PER_BYTE, EVEN, BK)
        gates = _read_codes(w, gate_row, w_row, k, model_dim, W_FORMAT, W_PER_BYTE, EVEN, BK)
        ups = _read_codes(w, up_row, w_row, k, model_dim, W_FORMAT, W_PER_BYTE, EVEN, BK)
        if KIND == WIDE:
            x_scale = _read_scales(a_scale, row, a_scale_row, k, model_dim, KIND, EVEN, BK)
            gate_scale = _read_scales(w_scale, gate_row // 128, w_scale_row, k, model_dim, KIND, EVEN, BK)
            up_scale = _read_scales(w_scale, up_row // 128, w_scale_row, k, model_dim, KIND, EVEN, BK)
        elif KIND == MX:
            x_scale = (
                None if A_FORMAT == "bf16" else _read_scales(a_scale, row, a_scale_row, k, model_dim, KIND, EVEN, BK)
            )
            gate_scale = _read_scales(w_scale, gate_row, w_scale_row, k, model_dim, KIND, EVEN, BK)
            up_scale = _read_scales(w_scale, up_row, w_scale_row, k, model_dim, KIND, EVEN, BK)
        else:
            x_scale, gate_scale, up_scale = None, None, None
        gate = _multiply(gate, x, x_scale, gates, gate_scale, KIND, A_FORMAT, W_FORMAT)
        up = _multiply(up, x, x_scale, ups, up_scale, KIND, A_FORMAT, W_FORMAT)
    gate = _by_rows(gate, a_scale, row, w_scale, gate_row, KIND)
    up = _by_rows(up, a_scale, row, w_scale, up_row, KIND)
    if DOWEIGHT:
        weight = tl.load(topk_weights + token * topk + (packed >> 24), live, other=0)
        gate *= weight[:, None]
        up *= weight[:, None]
    if HAS_BIAS:
        own = bias + expert.to(tl.int64) * (2 * inter_dim)
        gate += tl.load(own + gate_row)[None, :]
        up += tl.load(own + up_row)[None, :]
    values = _activated(gate, up, limit, alpha, beta, linear_beta, ACTIVATION, HAS_LIMIT)
    out_row = at.to(tl.int64)
    if TO == TO_BF16:
        tl.store(out + out_row[:, None] * inter_dim + column[None, :], to_bf16(values), live[:, None] & inside[None, :])
    else:
        store_quantised(values, out, out_scale, out_row, live, tl.program_id(1) * BN, inter_dim, TO, BM, BN)


@triton.jit(repr=_name_of_stage2, do_not_specialize=["tokens", "experts", "topk"])
def stage2(
    a, a_scale, w, w_scale, bias, out, ids, tile_expert, set_of, topk_weights,
    tokens, experts, inter_dim, model_dim, topk, a_row, a_scale_row, w_row, w_scale_row, w_set, w_scale_set,
    KIND: tl.constexpr, A_FORMAT: tl.constexpr, W_FORMAT: tl.constexpr, A_PER_BYTE: tl.constexpr, W_PER_BYTE: tl.constexpr,
    HAS_BIAS: tl.constexpr, WEIGH: tl.constexpr, ATOMIC: tl.constexpr,
    EVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """h W2^T for a tile of BM sorted rows and BN columns. out: fp32 `[M, H]` to add to, or bf16 `[M * k, H]`, a row a slot."""
    tile = tl.program_id(0)
    expert = tl.load(tile_expert + tile)
    if expert >= experts:
        return
    weights = tl.load(set_of + expert).to(tl.int64)
    row = (tile * BM + tl.arange(0, BM)).to(tl.int64)
    packed = tl.load(ids + row)
    token = packed & 0xFFFFFF
    live = token < tokens
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = column < model_dim
    w_column = tl.where(inside, column, 0).to(tl.int64)
    w += weights * w_set
    w_scale += weights * w_scale_set
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, inter_dim, BK):
        h = _read_codes(a, row, a_row, k, inter_dim, A_FORMAT, A_PER_BYTE, EVEN, BK)
        columns = _read_codes(w, w_column, w_row, k, inter_dim, W_FORMAT, W_PER_BYTE, EVEN, BK)
        if KIND == WIDE:
            h_scale = _read_scales(a_scale, row, a_scale_row, k, inter_dim, KIND, EVEN, BK)
            column_scale = _read_scales(w_scale, w_column // 128, w_scale_row, k, inter_dim, KIND, EVEN, BK)
        elif KIND == MX:
            h_scale = (
                None if A_FORMAT == "bf16" else _read_scales(a_scale, row, a_scale_row, k, inter_dim, KIND, EVEN, BK)
            )
            column_scale = _read_scales(w_scale, w_column, w_scale_row, k, inter_dim, KIND, EVEN, BK)
        else:
            h_scale, column_scale = None, None
        acc = _multiply(acc, h, h_scale, columns, column_scale, KIND, A_FORMAT, W_FORMAT)
    acc = _by_rows(acc, a_scale, row, w_scale, w_column, KIND)
    if HAS_BIAS:
        acc += tl.load(bias + expert.to(tl.int64) * model_dim + w_column)[None, :]
    slot = token * topk + (packed >> 24)
    if WEIGH:
        acc *= tl.load(topk_weights + slot, live, other=0)[:, None]
    mask = live[:, None] & inside[None, :]
    if ATOMIC:
        tl.atomic_add(out + token.to(tl.int64)[:, None] * model_dim + column[None, :], acc, mask, sem="relaxed")
    else:
        tl.store(out + slot.to(tl.int64)[:, None] * model_dim + column[None, :], to_bf16(acc), mask)


@triton.jit
def add_slots(slots, out, topk, columns, BN: tl.constexpr):
    """Row by row the sum over a token's slots, in fp32. slots: bf16 `[M * k, H]`; out: bf16 `[M, H]`."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = column < columns
    total = tl.zeros((BN,), tl.float32)
    for slot in range(topk):
        total += tl.load(slots + (token * topk + slot) * columns + column, inside, other=0).to(tl.float32)
    tl.store(out + token * columns + column, to_bf16(total), inside)
