"""The inverses of AITER's shuffles, written from what its kernels read (contract 5.2) and not from its functions."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS_IN_TURN = 16
"""Gate rows, then as many up rows, and so on."""


def untiled(weight: Tensor) -> Tensor:
    """`[E, rows, K]` of 16x16-byte tiles as a plain matrix of the same type. K counts stored elements."""
    stored = weight.view(torch.uint8) if weight.element_size() == 1 else weight
    experts, rows, k = stored.shape
    run = 16 // stored.element_size()
    step = 32 // run  # runs of a tile's K extent, 32 elements
    tiles = stored.reshape(experts, rows // 16, k // 32, step, 16, run)
    plain: Tensor = tiles.permute(0, 1, 4, 2, 3, 5).reshape(experts, rows, k)
    return plain.view(weight.dtype)


def in_order(rows: Tensor) -> Tensor:
    """`[E, 2I, K]` whose rows are 16 gate, 16 up and so on as I gate rows, then I up rows."""
    experts, count, k = rows.shape
    turns = rows.reshape(experts, count // (2 * ROWS_IN_TURN), 2, ROWS_IN_TURN, k)
    return turns.transpose(1, 2).reshape(experts, count, k)


def untiled_scales(scales: Tensor, experts: int, rows: int, groups: int) -> Tensor:
    """e8m0 bytes `[E, rows, K/32]` of scales in tiles of 32 rows by 8 groups, what fills them up left out."""
    stored = scales.view(torch.uint8)
    tiles = stored.reshape(stored.shape[0] // 32, stored.shape[1] // 8, 4, 16, 2, 2)
    plain = tiles.permute(0, 5, 3, 1, 4, 2).reshape(stored.shape)
    return plain[: experts * rows, :groups].reshape(experts, rows, groups)


def untiled_int4(weight: Tensor) -> Tensor:
    """int4 `[E, rows, K/2]` as int8 values `[E, rows, K]`."""
    experts, rows, packed = weight.shape
    pairs = weight.view(torch.uint8).reshape(-1, 4)
    values = torch.cat((pairs & 0xF, pairs >> 4), dim=1).to(torch.int16)
    signed = torch.where(values < 8, values, values - 16).to(torch.int8)
    return untiled(signed.reshape(experts, rows, 2 * packed))


def ungrouped_scales(scales: Tensor, experts: int, rows: int, groups: int) -> Tensor:
    """bf16 `[E, rows, K/32]` of int4 scales that lie group pair by group pair, rows side by side."""
    return scales.reshape(experts, groups // 2, rows, 2).permute(0, 2, 1, 3).reshape(experts, rows, groups)
