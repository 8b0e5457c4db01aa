"""CK's own choice of kernels, where no row names one: which tiles it takes, and whether they fit the shape.

Source: csrc/ck_gemm_moe_2stages_codegen/gen_instances.py of AITER e4048607a5. Tiles in elements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from moeshapes.recipe import Format, QType
from moeshapes.runtime.call import RuntimeCall
from moeshapes.runtime.version import NARROW_CK


@dataclass(frozen=True)
class Tiles:
    """Columns of a stage-1 tile, its step over model_dim; columns of a stage-2 tile, its step over inter_dim."""

    n1: int
    k1: int
    n2: int
    k2: int

    def misfit(self, call: RuntimeCall, stages: Collection[int]) -> str:
        """What a tile of the stages does not divide, in words; empty where all fit."""
        checks = (
            (1, "columns", self.n1, "inter_dim", call.inter_dim),
            (1, "K step", self.k1, "model_dim", call.model_dim),
            (2, "columns", self.n2, "model_dim", call.model_dim),
            (2, "K step", self.k2, "inter_dim", call.inter_dim),
        )
        return "; ".join(
            f"CK's stage {stage} has a tile of {tile} {what}, {dim} is {size} ({size} % {tile} = {size % tile})"
            for stage, what, tile, dim, size in checks
            if stage in stages and size % tile
        )


_TileTable = Callable[[int, bool], dict[int, Tiles]]
"""From inter_dim, and whether narrow tiles are there for 192 and less, to the tiles of each block_m."""


def _unquantised_gfx950(inter_dim: int, narrow: bool) -> dict[int, Tiles]:
    if narrow and inter_dim <= 192:
        return {32: Tiles(64, 64, 64, 64), 64: Tiles(64, 64, 128, 64), 128: Tiles(64, 64, 64, 64)}
    return {32: Tiles(64, 64, 128, 128), 64: Tiles(64, 64, 128, 128), 128: Tiles(128, 64, 128, 64)}


def _unquantised(inter_dim: int, narrow: bool) -> dict[int, Tiles]:
    if narrow and inter_dim <= 192:
        return {block: Tiles(64, 64, 64, 64) for block in (32, 64, 128)}
    return {32: Tiles(64, 64, 64, 64), 64: Tiles(128, 64, 128, 64), 128: Tiles(128, 64, 128, 64)}


def _eight_bit_gfx950(inter_dim: int, narrow: bool) -> dict[int, Tiles]:
    n1 = 64 if narrow and inter_dim <= 192 else 128
    return {32: Tiles(64, 128, 128, 256), 64: Tiles(64, 128, 128, 256), 128: Tiles(n1, 128, 128, 128)}


def _eight_bit(inter_dim: int, narrow: bool) -> dict[int, Tiles]:
    slim = narrow and inter_dim <= 192
    wide = Tiles(64, 128, 64, 64) if slim else Tiles(128, 128, 128, 128)
    return {16: Tiles(64, 256, 64, 64), 32: Tiles(64, 128, 64, 64 if slim else 128), 64: wide, 128: wide}


def _block_scale(inter_dim: int, narrow: bool) -> dict[int, Tiles]:
    k2 = 256 if inter_dim % 256 == 0 else 128
    return {16: Tiles(128, 256, 128, k2), 32: Tiles(128, 128, 128, 128), 64: Tiles(128, 128, 128, 128)}


def _fp4_shuffled(inter_dim: int, narrow: bool) -> dict[int, Tiles]:
    first = 32 if inter_dim <= 256 else 128
    return {32: Tiles(32, 256, first, 256), 64: Tiles(128, 256, 128, 256), 128: Tiles(128, 256, 128, 256)}


def _fp4_unshuffled(inter_dim: int, narrow: bool) -> dict[int, Tiles]:
    first, last = (32, 128) if inter_dim <= 256 else (128, 64)
    return {32: Tiles(128, 256, first, 256), 64: Tiles(64, 256, 64, 256), 128: Tiles(64, 256, last, 256)}


def _table(call: RuntimeCall) -> _TileTable | None:
    """The tiles for a call's formats; None where CK has no instance of them."""
    a, w = call.format.format, call.weight
    gfx950 = call.gfx == "gfx950"
    if a is not w:
        return None
    if w is Format.BF16:
        return _unquantised_gfx950 if gfx950 else _unquantised
    if w is Format.FP4:
        return _fp4_shuffled if call.shuffled else _fp4_unshuffled
    if call.q_type is QType.PER_1X128:
        return _block_scale
    if call.q_type in (QType.PER_TENSOR, QType.PER_TOKEN):
        return _eight_bit_gfx950 if gfx950 else _eight_bit
    return None


_ACTIVATIONS = {
    Format.BF16: ("silu", "gelu"),
    Format.FP4: ("silu", "gelu"),
    Format.FP8: ("silu", "gelu", "swiglu"),
    Format.INT8: ("silu", "gelu"),
}


def ck_obstacle(call: RuntimeCall, block_m: int, stages: Collection[int] = (1, 2)) -> str:
    """Why CK's own choice cannot serve these stages of a call at a sorted block size; empty where it can."""
    table = _table(call)
    formats = f"{call.format.format.value} activations x {call.weight.value} weights, {call.q_type.value}"
    if table is None:
        return f"CK has no instance for {formats}"
    if 1 in stages and call.activation not in _ACTIVATIONS[call.weight]:
        return f"CK has no instance for {call.activation} of {formats}"
    tiles = table(call.inter_dim, call.version.has(NARROW_CK)).get(block_m)
    if tiles is None:
        return f"CK has no instance for {formats} at block_m {block_m}"
    return tiles.misfit(call, stages)
