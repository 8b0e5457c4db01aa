"""Slots sorted by expert on the device, without a word to the host, so that it can be captured in a graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SLOT_SHIFT = 24


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
    """Sorts `topk_ids` int32 `[M, k]`."""
    tokens, topk = topk_ids.shape
    device, slots = topk_ids.device, tokens * topk
    expert, order = topk_ids.flatten().long().sort(stable=True)
    counts = torch.zeros(experts, dtype=torch.int64, device=device).scatter_add_(0, expert, torch.ones_like(expert))
    tiles_upto = ((counts + block_m - 1) // block_m).cumsum(0)
    first_row = (tiles_upto - (counts + block_m - 1) // block_m) * block_m
    first_slot = counts.cumsum(0) - counts
    row = first_row[expert] + torch.arange(slots, device=device) - first_slot[expert]
    tiles = tile_bound(slots, experts, block_m)
    ids = torch.full((tiles * block_m,), tokens, dtype=torch.int32, device=device)
    ids.scatter_(0, row, ((order % topk) << SLOT_SHIFT | order // topk).int())
    tile_expert = torch.searchsorted(tiles_upto, torch.arange(tiles, device=device), right=True)
    return Sorted(ids, tile_expert.int())
