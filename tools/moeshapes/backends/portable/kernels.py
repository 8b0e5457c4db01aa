"""Triton kernels of the portable backend. Weights stay packed; both stages walk rows sorted by expert in tiles of BM.

Numbers come in one of four kinds, which decides how a K step is multiplied:
PLAIN bf16; ROW fp8 with one fp32 scale a row of activations and of weights; WIDE fp8 with fp32 scales a 1x128 and a 128x128 block;
MX e8m0 scales a 32-wide block, through `dot_scaled`, activations bf16, fp8 or fp4.
Every value of a padded column is computed and written: its weights are zero.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

INTERPRETED = tl.constexpr(knobs.runtime.interpret)
"""Triton's interpreter multiplies bf16 as integers and rounds bf16 and fp8 its own way: there, kernels do it themselves."""

PLAIN = tl.constexpr(0)
ROW = tl.constexpr(1)
WIDE = tl.constexpr(2)
MX = tl.constexpr(3)

SILU = tl.constexpr(0)
GELU = tl.constexpr(1)
SWIGLU = tl.constexpr(2)
SITUV2 = tl.constexpr(3)

TO_BF16 = tl.constexpr(0)
TO_FP8 = tl.constexpr(1)
TO_FP4 = tl.constexpr(2)


@triton.jit
def _product(
    acc, a, a_scale, w, w_scale, row, row_live, column, column_live, k_elements,
    KIND: tl.constexpr, A_FORMAT: tl.constexpr, W_FORMAT: tl.constexpr, A_PER_BYTE: tl.constexpr, W_PER_BYTE: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    """acc `[BM, BN]` += A[row, :] W[column, :]^T over all K; `a` and `w` point at their matrices, `row` and `column` index them."""
    a_k: tl.constexpr = BK // A_PER_BYTE
    w_k: tl.constexpr = BK // W_PER_BYTE
    for k in range(0, k_elements, BK):
        a_at = k // A_PER_BYTE + tl.arange(0, a_k)
        w_at = k // W_PER_BYTE + tl.arange(0, w_k)
        a_in = a_at < k_elements // A_PER_BYTE
        w_in = w_at < k_elements // W_PER_BYTE
        a_tile = tl.load(
            a + row[:, None] * (k_elements // A_PER_BYTE) + a_at[None, :], row_live[:, None] & a_in[None, :], other=0
        )
        w_tile = tl.load(
            w + column[None, :] * (k_elements // W_PER_BYTE) + w_at[:, None],
            column_live[None, :] & w_in[:, None],
            other=0,
        )
        if A_FORMAT == "e4m3":
            a_tile = a_tile.to(tl.float8e4nv, bitcast=True)
        if W_FORMAT == "e4m3":
            w_tile = w_tile.to(tl.float8e4nv, bitcast=True)
        if KIND == MX:
            s_at = k // 32 + tl.arange(0, BK // 32)
            s_in = s_at < k_elements // 32
            ws = tl.load(
                w_scale + column[:, None] * (k_elements // 32) + s_at[None, :],
                column_live[:, None] & s_in[None, :],
                other=0,
            )
            if A_FORMAT == "bf16":
                acc = tl.dot_scaled(a_tile, None, "bf16", w_tile, ws, W_FORMAT, acc)
            else:
                a_s = tl.load(
                    a_scale + row[:, None] * (k_elements // 32) + s_at[None, :],
                    row_live[:, None] & s_in[None, :],
                    other=0,
                )
                acc = tl.dot_scaled(a_tile, a_s, A_FORMAT, w_tile, ws, W_FORMAT, acc)
        elif KIND == WIDE:
            wide = k_elements // 128
            a_s = tl.load(a_scale + row * wide + k // 128, row_live, other=0)
            ws = tl.load(w_scale + column // 128 * wide + k // 128, column_live, other=0)
            acc += tl.dot(a_tile, w_tile) * (a_s[:, None] * ws[None, :])
        elif INTERPRETED:
            acc = tl.dot(a_tile.to(tl.float32), w_tile.to(tl.float32), acc)
        else:
            acc = tl.dot(a_tile, w_tile, acc)
    if KIND == ROW:
        a_s = tl.load(a_scale + row, row_live, other=0)
        ws = tl.load(w_scale + column, column_live, other=0)
        acc = acc * (a_s[:, None] * ws[None, :])
    return acc


@triton.jit
def _to_bf16(x):
    """Nearest bf16, ties to even."""
    if INTERPRETED:
        bits = x.to(tl.int32, bitcast=True)
        nearest = bits + 0x7FFF + ((bits >> 16) & 1)
        x = tl.where(x == x, nearest, bits).to(tl.float32, bitcast=True)
    return x.to(tl.bfloat16)


@triton.jit
def _to_fp8(x):
    """Nearest e4m3fn of values within its range, ties to even, as bytes."""
    if INTERPRETED:
        exponent = tl.maximum((x.to(tl.int32, bitcast=True) >> 23) & 0xFF, 121)
        # Adding 1.5 * 2^23 steps of the format's own grid leaves the nearest grid point.
        shift = ((exponent + 20) << 23).to(tl.float32, bitcast=True) * 1.5
        x = (x + shift) - shift
    return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


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


@triton.jit
def _block_exponent(amax, TO: tl.constexpr):
    """The biased e8m0 exponent of a block: that of amax / max, rounded up (contract 6.3)."""
    top: tl.constexpr = 6.0 if TO == TO_FP4 else 448.0
    bits = tl.fdiv(amax, top).to(tl.int32, bitcast=True)
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
def _store_quantised(
    values, codes, scales, row, row_live, first_column, columns, TO: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Writes `[BM, BN]` values as MX codes and scales into row-major `[rows, columns]`."""
    grouped = tl.reshape(values, (BM, BN // 32, 32))
    exponent = _block_exponent(tl.max(tl.abs(grouped), axis=2), TO)
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
        tl.store(codes + row[:, None] * columns + column[None, :], _to_fp8(clamped), inside)
    else:
        low, high = tl.split(tl.reshape(_fp4_code(scaled), (BM, BN // 2, 2)))
        column = first_column // 2 + tl.arange(0, BN // 2)
        inside = row_live[:, None] & (column < columns // 2)[None, :]
        tl.store(codes + row[:, None] * (columns // 2) + column[None, :], low | (high << 4), inside)


@triton.jit
def stage1(
    a, a_scale, w, w_scale, bias, out, out_scale, ids, tile_expert, set_of, topk_weights,
    tokens, experts, model_dim, inter_dim, topk, w_set_stride, w_scale_set_stride, limit, alpha, beta, linear_beta,
    KIND: tl.constexpr, A_FORMAT: tl.constexpr, W_FORMAT: tl.constexpr, A_PER_BYTE: tl.constexpr, W_PER_BYTE: tl.constexpr,
    ACTIVATION: tl.constexpr, HAS_LIMIT: tl.constexpr, HAS_BIAS: tl.constexpr, DOWEIGHT: tl.constexpr,
    TO: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """act(x W_gate^T) * x W_up^T for a tile of BM sorted rows and BN columns of the intermediate.

    out: bf16 `[R, I]`, or MX codes with `out_scale` `[R, I/32]`. w: `[sets, 2I, K]`, gate rows then up rows.
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
    zeros = tl.zeros((BM, BN), tl.float32)
    w += weights * w_set_stride
    w_scale += weights * w_scale_set_stride
    gate = _product(
        zeros, a, a_scale, w, w_scale, token.to(tl.int64), live, column, inside, model_dim,
        KIND, A_FORMAT, W_FORMAT, A_PER_BYTE, W_PER_BYTE, BK,
    )  # fmt: skip
    up = _product(
        zeros, a, a_scale, w, w_scale, token.to(tl.int64), live, inter_dim + column, inside, model_dim,
        KIND, A_FORMAT, W_FORMAT, A_PER_BYTE, W_PER_BYTE, BK,
    )  # fmt: skip
    if DOWEIGHT:
        weight = tl.load(topk_weights + token * topk + (packed >> 24), live, other=0)
        gate *= weight[:, None]
        up *= weight[:, None]
    if HAS_BIAS:
        own = bias + expert.to(tl.int64) * (2 * inter_dim)
        gate += tl.load(own + column, inside, other=0)[None, :]
        up += tl.load(own + inter_dim + column, inside, other=0)[None, :]
    values = _activated(gate, up, limit, alpha, beta, linear_beta, ACTIVATION, HAS_LIMIT)
    row = at.to(tl.int64)
    if TO == TO_BF16:
        tl.store(out + row[:, None] * inter_dim + column[None, :], _to_bf16(values), live[:, None] & inside[None, :])
    else:
        _store_quantised(values, out, out_scale, row, live, tl.program_id(1) * BN, inter_dim, TO, BM, BN)


@triton.jit
def stage2(
    a, a_scale, w, w_scale, bias, out, ids, tile_expert, set_of, topk_weights,
    tokens, experts, inter_dim, model_dim, topk, w_set_stride, w_scale_set_stride,
    KIND: tl.constexpr, A_FORMAT: tl.constexpr, W_FORMAT: tl.constexpr, A_PER_BYTE: tl.constexpr, W_PER_BYTE: tl.constexpr,
    HAS_BIAS: tl.constexpr, WEIGH: tl.constexpr, ATOMIC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """h W2^T for a tile of BM sorted rows and BN columns. out: fp32 `[M, H]` to add to, or bf16 `[M * k, H]`, a row a slot."""
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
    inside = column < model_dim
    acc = _product(
        tl.zeros((BM, BN), tl.float32), a, a_scale, w + weights * w_set_stride, w_scale + weights * w_scale_set_stride,
        at.to(tl.int64), live, column, inside, inter_dim, KIND, A_FORMAT, W_FORMAT, A_PER_BYTE, W_PER_BYTE, BK,
    )  # fmt: skip
    if HAS_BIAS:
        acc += tl.load(bias + expert.to(tl.int64) * model_dim + column, inside, other=0)[None, :]
    slot = token * topk + (packed >> 24)
    if WEIGH:
        acc *= tl.load(topk_weights + slot, live, other=0)[:, None]
    mask = live[:, None] & inside[None, :]
    if ATOMIC:
        tl.atomic_add(out + token.to(tl.int64)[:, None] * model_dim + column[None, :], acc, mask, sem="relaxed")
    else:
        tl.store(out + slot.to(tl.int64)[:, None] * model_dim + column[None, :], _to_bf16(acc), mask)


@triton.jit
def quantise_mx(x, codes, scales, rows, columns, TO: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """bf16 `[rows, columns]` to MX codes and scales, by the quantiser's own rule."""
    row = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    live = row < rows
    mask = live[:, None] & (column < columns)[None, :]
    values = tl.load(x + row[:, None] * columns + column[None, :], mask, other=0).to(tl.float32)
    _store_quantised(values, codes, scales, row, live, tl.program_id(1) * BN, columns, TO, BM, BN)
