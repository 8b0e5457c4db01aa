"""Why a readable row cannot be judged all the same: its kernels are not known, or no layer has its shape."""

from __future__ import annotations

from moeshapes.kernel_name import parse
from moeshapes.recipe import RECIPES, Format
from moeshapes.row import TunedRow, UntunedRow
from moeshapes.use import Use

ACTIVATIONS = ("silu", "gelu", "swiglu", "situv2")
LARGEST_BLOCK_M = 1024


def why_not_judged(row: TunedRow, use: Use) -> str:
    """A reason, empty where the row can be judged. `use` has a recipe."""
    unknown = [name for name in (row.kernel1, row.kernel2) if name and parse(name) is None]
    if unknown or not row.kernel1:
        return f"it is not known what `{unknown[0]}` computes" if unknown else "the row names no kernel for stage 1"
    if row.block_m > LARGEST_BLOCK_M:
        return f"block_m {row.block_m} is over {LARGEST_BLOCK_M}: no kernel sorts into such tiles"
    return _why_no_layer(row.key.shape, use)


def _why_no_layer(shape: UntunedRow, use: Use) -> str:
    if use.activation not in ACTIVATIONS:
        return f"{shape.act_type} is no activation of a gated expert"
    if shape.topk > shape.expert:
        return f"topk {shape.topk} of {shape.expert} experts"
    recipe = RECIPES[use.recipe]
    width = recipe.block or (2 if Format.FP4 in (recipe.a, recipe.w) else 1)
    off = [name for name in ("model_dim", "inter_dim") if getattr(shape, name) % width]
    return f"{' and '.join(off)} is no multiple of {recipe.name}'s scale block, {width}" if off else ""
