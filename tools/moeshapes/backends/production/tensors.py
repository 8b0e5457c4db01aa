"""A layer's weights as AITER's kernels read them: packed, stacked by expert, shuffled by AITER's own functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from moeshapes.backends.production.layout import ScaleLayout, WeightLayout, layout_of
from moeshapes.backends.production.library import Library
from moeshapes.quant import Quantised
from moeshapes.recipe import Format
from moeshapes.workload import Layer

_TILE = (16, 16)
_ROWS_IN_TURN = 16
_INT4_GROUP = 32


@dataclass(frozen=True)
class Weights:
    """What `fused_moe` takes: w1 `[E, 2I, H]` and w2 `[E, H, I]`, K halved where two codes share a byte.

    Both are marked `is_shuffled`. Scales are None (bf16); fp32 `[E, 1]`, `[E, rows, 1]` or `[E, rows/128, K/128]`; e8m0
    of two dims, rows of all experts one after another; bf16 of one dim (int4).
    """

    w1: Tensor
    w2: Tensor
    w1_scale: Tensor | None
    w2_scale: Tensor | None


def kernel_ready(layer: Layer, library: Library) -> Weights:
    """Shuffles last: what copies a tensor afterwards loses AITER's mark, and its kernels then read another layout.

    Raises ValueError where the layer's fp8 is not this GPU's: AITER would find no row and misread every code.
    """
    layout = layout_of(layer.problem)
    _require_own_fp8(layer.w1[0], library)
    sets = layer.set_of.tolist()
    w1, w2 = _stacked(layer.w1, sets), _stacked(layer.w2, sets)
    return Weights(
        w1=_marked(_shuffled(w1, layout.w1, library)),
        w2=_marked(_shuffled(w2, layout.w2, library)),
        w1_scale=_scale(w1, layout.w1_scale, library),
        w2_scale=_scale(w2, layout.w2_scale, library),
    )


def _require_own_fp8(weight: Quantised, library: Library) -> None:
    if weight.spec.number is Format.FP8 and weight.codes.dtype != library.dtypes.fp8:
        raise ValueError(f"the layer's weights are {weight.codes.dtype}, fp8 is {library.dtypes.fp8} on this GPU")


def _stacked(weights: Sequence[Quantised], sets: Sequence[int]) -> Quantised:
    """Codes `[E, rows, K]` and scales `[E, ...]`, an expert after another whichever sets they share."""
    codes = _stack([weights[index].codes for index in sets])
    scales = [scale for index in sets if (scale := weights[index].scales) is not None]
    return Quantised(weights[0].spec, codes, _stack(scales) if scales else None)


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    dtype = tensors[0].dtype
    if dtype.itemsize > 1:
        return torch.stack(list(tensors))
    return torch.stack([tensor.view(torch.uint8) for tensor in tensors]).view(dtype)


def _marked(weight: Tensor) -> Tensor:
    """A mark of this very tensor object: AITER's functions set it, and any view since has dropped it."""
    weight.is_shuffled = True  # type: ignore[attr-defined]
    return weight


# --- weights


def _shuffled(weight: Quantised, layout: WeightLayout, library: Library) -> Tensor:
    if layout is WeightLayout.INT4:
        return _int4(weight, library)
    codes = weight.codes.view(library.dtypes.fp4x2) if weight.spec.number is Format.FP4 else weight.codes
    tiled: Tensor
    if layout is WeightLayout.INTERLEAVED:
        tiled = library.shuffle.shuffle_weight_a16w4(codes, _ROWS_IN_TURN, True)
    else:
        tiled = library.shuffle.shuffle_weight(codes, _TILE)
    return tiled


def _int4(weight: Quantised, library: Library) -> Tensor:
    """Shuffled as bytes of one value each, then packed anew: AITER's order within eight values is its own."""
    experts, rows, packed = weight.codes.shape
    shuffled = library.shuffle.shuffle_weight(_one_a_byte(weight.codes), _TILE)
    codes: Tensor = library.shuffle.pack_int8_to_packed_int4(shuffled)
    return codes.view(experts, rows, packed).view(library.dtypes.i4x2)


def _one_a_byte(packed: Tensor) -> Tensor:
    """int8 `[..., K]` in [-8, 7] of packed uint8 `[..., K/2]`, the even K index in the low nibble."""
    nibbles = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)
    return ((nibbles ^ 8) - 8).view(torch.int8)


# --- scales


def _scale(weight: Quantised, layout: ScaleLayout, library: Library) -> Tensor | None:
    scales = weight.scales
    if scales is None or layout is ScaleLayout.PLAIN:
        return scales
    if layout is ScaleLayout.INT4:
        by_group = scales.transpose(1, 2).contiguous()
        int4: Tensor = library.shuffle.shuffle_scale_for_int4(by_group, _INT4_GROUP)
        return int4.view(-1)
    e8m0: Tensor = _e8m0(scales.flatten(0, 1), scales.shape[0], layout, library)
    return e8m0.view(library.dtypes.fp8_e8m0)


def _e8m0(rows: Tensor, experts: int, layout: ScaleLayout, library: Library) -> Tensor:
    """`rows` `[E * rows, K/32]` shuffled."""
    if layout is ScaleLayout.E8M0:
        tiles: Tensor = library.fp4_utils.e8m0_shuffle(rows)
        return tiles
    in_turn: Tensor = library.shuffle.shuffle_scale_a16w4(rows, experts, layout is ScaleLayout.INTERLEAVED)
    return in_turn
