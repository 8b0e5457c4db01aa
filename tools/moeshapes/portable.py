"""The portable Triton kernels as tables know them: which there can be, and what runs without a row. No torch here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moeshapes.kernel_name import KernelName
from moeshapes.recipe import Format, QType, Recipe

FAMILIES = frozenset({"triton_moe1", "triton_moe2"})
"""The families of their names. They run on any GPU that Triton compiles for, MX formats included."""

_Q_TYPES = frozenset({QType.NO, QType.PER_TOKEN, QType.PER_1X128, QType.PER_1X32})
_FORMATS = frozenset({Format.BF16, Format.FP8, Format.FP4})
_MX_BLOCK = 32
_MOST_WARPS = 32

_TILE_M_TIERS = ((64, 16), (2047, 32))
"""Sorted rows of a default tile for buckets up to a token count; 64 for larger ones."""
_LARGEST_TILE_M = 64
DEFAULT_IN_WORDS = "fixed tiles by token tier: 16 rows to 64 tokens, 32 below 2048, then 64"


def default_launch(recipe: Recipe, tokens: int) -> dict[str, Any]:
    """Fixed tiles by token tier, never fused: what a row must beat, as AITER's own fallback is for its rows."""
    block_m = next((rows for most, rows in _TILE_M_TIERS if tokens <= most), _LARGEST_TILE_M)
    formats = f"a{recipe.a.value}_w{recipe.w.value}_bf16"
    tile = f"t{block_m}x128x128_w4_s2"
    return {
        "block_m": block_m,
        "ksplit": 0,
        "kernelName1": f"triton_moe1_{formats}_{tile}",
        "kernelName2": f"triton_moe2_{formats}_{tile}_atomic",
        "run_1stage": 0,
        "xbf16": 0,
        "flat": 0,
    }


def why_no_kernels(recipe: Recipe, fnuz: bool) -> str:
    """Why there are no kernels for a recipe, on GPUs whose fp8 is fnuz or not; empty where there are."""
    if recipe.q_type not in _Q_TYPES or not {recipe.a, recipe.w} <= _FORMATS:
        return f"the portable backend has no kernels for {recipe.name}"
    if fnuz and Format.FP8 in (recipe.a, recipe.w):
        return "the portable backend reads fp8 as e4m3fn, not as the e4m3fnuz of this architecture"
    return ""


def kernel_faults(kernel: KernelName, recipe: Recipe) -> Iterator[str]:
    """Why a kernel of FAMILIES cannot be run for a recipe, beside its formats and block_m; its name is the subject."""
    sizes = {"tile M": kernel.tile_m, "tile N": kernel.tile_n, "tile K": kernel.tile_k, "warps": kernel.warps}
    uneven = [f"{what} {size}" for what, size in sizes.items() if not _is_power_of_two(size or 0)]
    if uneven:
        yield f"has {', '.join(uneven)}, where Triton takes powers of two"
    if (kernel.warps or 0) > _MOST_WARPS or not kernel.stages:
        yield f"has {kernel.warps} warps and {kernel.stages} stages: {_MOST_WARPS} at most, and 1 at least"
    if recipe.q_type is QType.PER_1X128 and (kernel.tile_k or 0) > recipe.block:
        yield f"steps over more than one scale block of {recipe.block}"
    if recipe.q_type is QType.PER_1X32 and (kernel.tile_k or 0) < recipe.block:
        yield f"steps over less than a scale block of {recipe.block}"
    yield from _fused_faults(kernel, recipe)


def _fused_faults(kernel: KernelName, recipe: Recipe) -> Iterator[str]:
    fused = kernel.out_quant
    if fused and (recipe.q_type is not QType.PER_1X32 or fused != recipe.a.value):
        yield f"writes {fused}, which stage 2 of {recipe.name} does not read"
    elif fused and (kernel.tile_n or 0) < _MX_BLOCK:
        yield f"writes scales for blocks of {_MX_BLOCK} columns, from tiles of {kernel.tile_n}"


def _is_power_of_two(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0
