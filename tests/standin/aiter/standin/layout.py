"""AITER's gfx9 weight and scale layouts as permutations, forward and back (contract 5.2). Bits move, none changes.

A row of a weight is cut into runs of 16 bytes. Sixteen rows by one run are a tile of 256 bytes; tiles go along the row,
then down. Interleaved: sixteen gate rows' tiles, then sixteen up rows'. Scales: 32 rows by 8 columns, with the pairs
of row halves (or of gate and up) and of column halves innermost.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = 16
_RUN_BYTES = 16
SCALE_ROWS, SCALE_COLUMNS = 256, 8
_KEEP_FORWARD, _KEEP_BACK = (0, 1, 4, 6, 3, 5, 2), (0, 1, 6, 4, 2, 5, 3)
_PAIR_FORWARD, _PAIR_BACK = (0, 2, 4, 6, 3, 5, 1), (0, 6, 1, 4, 2, 5, 3)


def weight_forward(x: Tensor, interleaved: bool) -> Tensor:
    """`[E, N, K]` of any element size to the kernels' order, same shape."""
    e, n, k = x.shape
    halves, run = 2 if interleaved else 1, _RUN_BYTES // x.element_size()
    tiles = x.view(e, halves, n // halves // ROWS, ROWS, k // run, run)
    return tiles.permute(0, 2, 1, 4, 3, 5).contiguous().view(x.shape)


def weight_back(y: Tensor, interleaved: bool) -> Tensor:
    """The inverse of `weight_forward`."""
    e, n, k = y.shape
    halves, run = 2 if interleaved else 1, _RUN_BYTES // y.element_size()
    tiles = y.view(e, n // halves // ROWS, halves, k // run, ROWS, run)
    return tiles.permute(0, 2, 1, 4, 3, 5).contiguous().view(y.shape)


def scale_forward(x: Tensor, interleaved: bool) -> Tensor:
    """`[E, N, C]` bytes, N a multiple of 32 and C of 8, to the kernels' order, same shape."""
    e, n, c = x.shape
    blocks = (e, 2, n // 32, 16) if interleaved else (e, n // 32, 2, 16)
    moved = x.view(*blocks, c // 8, 2, 4).permute(*(_PAIR_FORWARD if interleaved else _KEEP_FORWARD))
    return moved.contiguous().view(x.shape)


def scale_back(y: Tensor, interleaved: bool) -> Tensor:
    """The inverse of `scale_forward`."""
    e, n, c = y.shape
    moved = y.view(e, n // 32, c // 8, 4, 16, 2, 2).permute(*(_PAIR_BACK if interleaved else _KEEP_BACK))
    return moved.contiguous().view(y.shape)


def int4_pack(x: Tensor) -> Tensor:
    """int8 values of four bits to bytes, flat: eight values `v` to `v0|v4<<4, v1|v5<<4, v2|v6<<4, v3|v7<<4`."""
    nibbles = x.contiguous().view(torch.uint8).view(-1, 2, 4) & 0xF
    return (nibbles[:, 0] | nibbles[:, 1] << 4).contiguous().view(torch.int8).view(-1)


def int4_unpack(y: Tensor) -> Tensor:
    """The inverse of `int4_pack`: bytes of any shape to int8 values in [-8, 7], flat."""
    packed = y.contiguous().view(torch.uint8).view(-1, 4)
    nibbles = torch.stack((packed & 0xF, packed >> 4), dim=1).view(torch.int8).view(-1)
    return torch.where(nibbles > 7, nibbles - 16, nibbles)


def int4_scale_forward(x: Tensor) -> Tensor:
    """`[E, G, N]` bf16 to `[E, G/2, N, 2]`: two groups of one output row side by side."""
    e, g, n = x.shape
    return x.view(e, g // 2, 2, n).permute(0, 1, 3, 2).contiguous()


def int4_scale_back(y: Tensor, experts: int, groups: int) -> Tensor:
    """The inverse of `int4_scale_forward`, from any shape: `[E, G, N]`."""
    return y.view(experts, groups // 2, -1, 2).permute(0, 1, 3, 2).reshape(experts, groups, -1)
