"""Slots sorted by expert on the device, without a word to the host, so that it can be captured in a graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from moeshapes.backends.portable.launch import launch

SLOT_SHIFT = tl.constexpr(24)
_CHUNK = 1024


@dataclass(frozen=True)
class Sorted:
    """Rows of slots sorted by expert, each expert's filled up to block_m, then tiles of no expert up to a fixed number.

    ids: int32 `[tiles * block_m]`, slot << 24 | token, token = M in filling rows.
    tile_expert: int32 `[tiles]`, E for none.
    """

    ids: Tensor
    tile_expert: Tensor

    @property
    def tiles(self) -> int:
        return self.tile_expert.shape[0]


def tile_bound(slots: int, experts: int, block_m: int) -> int:
    """The most tiles that `slots` slots can need: of each expert that is hit, one tile at most is filled in part."""
    return min(slots, experts + slots // block_m)


def sort_slots(topk_ids: Tensor, experts: int, block_m: int) -> Sorted:
    """Sorts `topk_ids` int32 `[M, k]`, an expert's slots in the order in which they come."""
    tokens, topk = topk_ids.shape
    device, tiles = topk_ids.device, tile_bound(tokens * topk, experts, block_m)
    counts = torch.empty(experts, dtype=torch.int32, device=device)
    ids = torch.empty(tiles * block_m, dtype=torch.int32, device=device)
    tile_expert = torch.empty(tiles, dtype=torch.int32, device=device)
    width = min(_CHUNK, triton.next_power_of_2(tokens * topk))
    launch(count_slots, (experts,), topk_ids, counts, tokens * topk, WIDTH=width)
    launch(
        place_slots, (experts + 1,), topk_ids, counts, ids, tile_expert, tokens, topk, experts, tiles,
        EXPERTS=triton.next_power_of_2(experts), BM=block_m, WIDTH=width,
    )  # fmt: skip
    return Sorted(ids, tile_expert)


@triton.jit(do_not_specialize=["slots"])
def count_slots(topk_ids, counts, slots, WIDTH: tl.constexpr):
    """How many slots each expert has: a program an expert."""
    expert = tl.program_id(0)
    count = tl.zeros((WIDTH,), tl.int32)
    for first in range(0, slots, WIDTH):
        at = first + tl.arange(0, WIDTH)
        count += (tl.load(topk_ids + at, at < slots, other=-1) == expert).to(tl.int32)
    tl.store(counts + expert, tl.sum(count))


@triton.jit(do_not_specialize=["tokens", "topk", "experts", "tiles"])
def place_slots(
    topk_ids, counts, ids, tile_expert, tokens, topk, experts, tiles,
    EXPERTS: tl.constexpr, BM: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Writes each expert's tiles: a program an expert, and one more for the tiles that are left."""
    expert = tl.program_id(0)
    every = tl.arange(0, EXPERTS)
    tiles_of = (tl.load(counts + every, every < experts, other=0) + BM - 1) // BM
    first_tile = tl.sum(tl.where(every < expert, tiles_of, 0))
    own_tiles = tl.sum(tl.where(every == expert, tiles_of, 0))
    own_tiles = tl.where(expert == experts, tiles - first_tile, own_tiles)
    for first in range(0, own_tiles * BM, WIDTH):
        row = first + tl.arange(0, WIDTH)
        tl.store(ids + first_tile * BM + row, tl.zeros_like(row) + tokens, row < own_tiles * BM)
        tl.store(
            tile_expert + first_tile + row // BM, tl.zeros_like(row) + expert, (row < own_tiles * BM) & (row % BM == 0)
        )
    tl.debug_barrier()
    placed = first_tile * BM
    for first in range(0, tokens * topk, WIDTH):
        at = first + tl.arange(0, WIDTH)
        own = (tl.load(topk_ids + at, at < tokens * topk, other=-1) == expert).to(tl.int32)
        packed = ((at % topk) << SLOT_SHIFT) | (at // topk)
        tl.store(ids + placed + tl.cumsum(own) - 1, packed, own != 0)
        placed += tl.sum(own)
