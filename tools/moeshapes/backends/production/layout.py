"""Which layout each recipe's kernels read (contract 5.1): plain data, no tensors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from moeshapes.problem import Problem
from moeshapes.recipe import Format, QType


class WeightLayout(Enum):
    """How codes are shuffled.

    AITER's function for mixed formats gives TILED bit by bit where gate and up are not in turn, for fewer widths.
    """

    TILED = "16x16 tiles"
    INTERLEAVED = "16x16 tiles, 16 gate rows and 16 up rows in turn"
    INT4 = "16x16 tiles of bytes, then packed in eights"


class ScaleLayout(Enum):
    """How scales are shuffled. PLAIN stands for fp32 scales, or none."""

    PLAIN = "as quantised"
    E8M0 = "tiles of 32 x 8, rows of all experts filled up to 256"
    INTERLEAVED = "tiles of 32 x 8, gate and up in turn"
    SEPARATED = "tiles of 32 x 8, an expert after another"
    INT4 = "pairs of groups, rows side by side"


@dataclass(frozen=True)
class Layout:
    """The layout of both weights and of their scales."""

    w1: WeightLayout
    w2: WeightLayout
    w1_scale: ScaleLayout
    w2_scale: ScaleLayout


def layout_of(problem: Problem) -> Layout:
    """FlyDSL's layout of gate and up follows from fp8 activations, whatever gate mode is passed (contract 3.4)."""
    recipe, interleave = problem.recipe, problem.interleave or problem.recipe.a is Format.FP8
    if recipe.q_type is not QType.PER_1X32:
        return Layout(WeightLayout.TILED, WeightLayout.TILED, ScaleLayout.PLAIN, ScaleLayout.PLAIN)
    if recipe.w is Format.INT4:
        return Layout(WeightLayout.INT4, WeightLayout.INT4, ScaleLayout.INT4, ScaleLayout.INT4)
    if recipe.a is Format.FP4 and not interleave:
        return Layout(WeightLayout.TILED, WeightLayout.TILED, ScaleLayout.E8M0, ScaleLayout.E8M0)
    second = ScaleLayout.E8M0 if recipe.w is Format.FP8 else ScaleLayout.SEPARATED
    if interleave:
        return Layout(WeightLayout.INTERLEAVED, WeightLayout.TILED, ScaleLayout.INTERLEAVED, second)
    return Layout(WeightLayout.TILED, WeightLayout.TILED, ScaleLayout.SEPARATED, second)
