"""What the portable backend runs where no row says otherwise."""

from __future__ import annotations

from typing import Any

from moeshapes.recipe import Recipe


def default_launch(recipe: Recipe, tokens: int) -> dict[str, Any]:
    """Fixed tiles by token tier, never fused: what a row must beat, as AITER's own fallback is for its rows."""
    block_m, warps = (16, 4) if tokens <= 64 else (32, 4) if tokens < 2048 else (64, 4)
    formats = f"a{recipe.a.value}_w{recipe.w.value}_bf16"
    tile = f"t{block_m}x128x128_w{warps}_s2"
    return {
        "block_m": block_m,
        "ksplit": 0,
        "kernelName1": f"triton_moe1_{formats}_{tile}",
        "kernelName2": f"triton_moe2_{formats}_{tile}_atomic",
        "run_1stage": 0,
        "xbf16": 0,
        "flat": 0,
    }
