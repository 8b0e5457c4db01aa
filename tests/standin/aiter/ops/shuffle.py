"""AITER's shuffles of weights and scales for gfx9, bit for bit; what no recipe uses is refused."""

from __future__ import annotations

import torch
from torch import Tensor

from ..standin.layout import (
    ROWS,
    SCALE_COLUMNS,
    SCALE_ROWS,
    int4_pack,
    int4_scale_forward,
    scale_forward,
    weight_forward,
)
from ..standin.mark import Mark, mark_of, put_mark
from ..standin.refusal import require

_UNREAD = 0xFF
"""In padding that AITER leaves uninitialised: as a scale it is NaN, so that nothing may read it."""
_NEUTRAL = 0x7F
_LANE_COLUMNS = {False: 32, True: 64}


def shuffle_weight(
    x: Tensor,
    layout: tuple[int, int] = (16, 16),
    use_int4: bool = False,
    is_guinterleave: bool = False,
    gate_up: bool = False,
    pad_k_to: int = 0,
) -> Tensor:
    """`[E, N, K]` in the kernels' order, same shape and dtype, `is_shuffled` set."""
    require(layout == (16, 16), f"shuffle_weight: layout {layout} is no recipe's")
    require(not (use_int4 or pad_k_to), "shuffle_weight: use_int4 and pad_k_to are no recipe's")
    interleaved = is_guinterleave and gate_up
    stored = x.view(torch.uint8) if x.dtype is torch.float4_e2m1fn_x2 else x
    require(stored.dim() == 3, f"shuffle_weight: {stored.dim()} dimensions, not [E, N, K]")
    rows, columns = ROWS * (2 if interleaved else 1), _LANE_COLUMNS[is_guinterleave]
    require(stored.shape[1] % rows == 0, f"shuffle_weight: {stored.shape[1]} rows are no multiple of {rows}")
    require(stored.shape[2] % columns == 0, f"shuffle_weight: {stored.shape[2]} columns are no multiple of {columns}")
    moved = put_mark(weight_forward(stored, interleaved), Mark("weight", interleaved)).view(x.dtype)
    moved.is_shuffled = True  # type: ignore[attr-defined]
    return moved


def shuffle_weight_a16w4(src: Tensor, NLane: int, gate_up: bool) -> Tensor:  # noqa: N803
    """`shuffle_weight`, gate and up interleaved if `gate_up`."""
    return shuffle_weight(src, layout=(NLane, 16), is_guinterleave=True, gate_up=gate_up)


def moe_shuffle_weight(
    src: Tensor,
    experts_cnt: int | None = None,
    is_guinterleave: bool = False,
    gate_up: bool = False,
    layout: tuple[int, int] = (16, 16),
) -> Tensor:
    """`shuffle_weight` of the device's architecture: gfx9 here."""
    return shuffle_weight(src, layout=layout, is_guinterleave=is_guinterleave, gate_up=gate_up)


def shuffle_scale(
    src: Tensor | None, experts_cnt: int | None = None, is_guinterleave: bool = False, gate_up: bool = False
) -> Tensor | None:
    """e8m0 scales `[E * N, K / 32]` in the kernels' order, padded; None and fp32 pass through."""
    if src is None or src.dtype is torch.float32:
        return src
    require(src.dim() == 2, f"shuffle_scale: {src.dim()} dimensions, not [E * N, K / 32]")
    if not is_guinterleave:
        padded = _padded(src, SCALE_ROWS, SCALE_COLUMNS, _UNREAD)
        moved = scale_forward(padded.unsqueeze(0), interleaved=False)
        return put_mark(moved, Mark("scale")).view(src.dtype).view(padded.shape)
    require(experts_cnt is not None, "shuffle_scale: experts_cnt is required where gates are interleaved")
    assert experts_cnt is not None
    padded = _padded(src, 1, SCALE_COLUMNS, _NEUTRAL)
    moved = scale_forward(padded.view(experts_cnt, -1, padded.shape[1]), gate_up)
    return put_mark(moved, Mark("scale", gate_up)).view(src.dtype).view(padded.shape)


def _padded(src: Tensor, rows: int, columns: int, fill: int) -> Tensor:
    """As bytes, filled up to multiples."""
    stored = src.view(torch.uint8)
    missing = (-stored.shape[1] % columns, -stored.shape[0] % rows)
    return torch.nn.functional.pad(stored, (0, missing[0], 0, missing[1]), value=fill).contiguous()


def shuffle_scale_a16w4(src: Tensor, experts_cnt: int, gate_up: bool) -> Tensor | None:
    """`shuffle_scale` by expert, gate and up interleaved if `gate_up`."""
    return shuffle_scale(src, experts_cnt=experts_cnt, is_guinterleave=True, gate_up=gate_up)


def moe_shuffle_scale(
    src: Tensor, experts_cnt: int | None = None, is_guinterleave: bool = False, gate_up: bool = False
) -> Tensor | None:
    """`shuffle_scale` of the device's architecture: gfx9 here."""
    return shuffle_scale(src, experts_cnt=experts_cnt, is_guinterleave=is_guinterleave, gate_up=gate_up)


def pack_int8_to_packed_int4(x_shuf_i8: Tensor) -> Tensor:
    """Shuffled int8 values in [-8, 7] to bytes of two, flat."""
    packed = int4_pack(x_shuf_i8)
    return put_mark(packed, Mark("int4 weight")) if mark_of(x_shuf_i8) == Mark("weight") else packed


def shuffle_scale_for_int4(scale: Tensor, group_size: int = 32) -> Tensor:
    """bf16 `[E, K / 32, N]` to `[E, K / 64, N, 2]`; fp32 stays as it is."""
    if group_size != 32:
        raise ValueError(f"shuffle_scale_for_int4 only supports group_size=32, got {group_size}")
    if scale.dtype is not torch.bfloat16:
        return scale.contiguous()
    return put_mark(int4_scale_forward(scale), Mark("int4 scale"))
