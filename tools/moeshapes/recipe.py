"""The registry of quantisation recipes. Nothing else in the project names one.

A recipe is AITER's (q_dtype_a, q_dtype_w, q_type) triple. The architecture decides fp8's flavour, fn or fnuz.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Format(str, Enum):
    """A number format of activations or weights, without the flavour that an architecture gives it."""

    BF16 = "bf16"
    FP8 = "fp8"
    FP4 = "fp4"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def per_byte(self) -> int:
        """How many codes stand in one byte: two where they are of four bits, else 1, though bf16 takes two bytes."""
        return 2 if self in (Format.FP4, Format.INT4) else 1


class QType(str, Enum):
    """What one scale covers, in AITER's `QuantType` spelling (contract 2.2)."""

    NO = "No"
    PER_TENSOR = "per_Tensor"
    PER_TOKEN = "per_Token"
    PER_1X32 = "per_1x32"
    PER_1X128 = "per_1x128"

    def __str__(self) -> str:
        return f"QuantType.{self.value}"


@dataclass(frozen=True)
class Recipe:
    """How a fused MoE's activations and weights are quantised. `block`: the scale's K extent in elements, or 0."""

    name: str
    a: Format
    w: Format
    q_type: QType

    @property
    def block(self) -> int:
        return {QType.PER_1X32: 32, QType.PER_1X128: 128}.get(self.q_type, 0)

    @property
    def quantises_activations(self) -> bool:
        return self.a is not Format.BF16


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("a4w4", Format.FP4, Format.FP4, QType.PER_1X32),
        Recipe("a8w4", Format.FP8, Format.FP4, QType.PER_1X32),
        Recipe("a16w4", Format.BF16, Format.FP4, QType.PER_1X32),
        Recipe("a16wi4", Format.BF16, Format.INT4, QType.PER_1X32),
        Recipe("mxfp8", Format.FP8, Format.FP8, QType.PER_1X32),
        Recipe("fp8_block", Format.FP8, Format.FP8, QType.PER_1X128),
        Recipe("fp8_token", Format.FP8, Format.FP8, QType.PER_TOKEN),
        Recipe("fp8_tensor", Format.FP8, Format.FP8, QType.PER_TENSOR),
        Recipe("int8", Format.INT8, Format.INT8, QType.PER_TENSOR),
        Recipe("bf16", Format.BF16, Format.BF16, QType.NO),
    )
}

_TORCH_DTYPE = {
    Format.BF16: "torch.bfloat16",
    Format.FP4: "torch.float4_e2m1fn_x2",
    Format.INT8: "torch.int8",
    Format.INT4: "torch.int4",
}
_FP8_FN, _FP8_FNUZ = "torch.float8_e4m3fn", "torch.float8_e4m3fnuz"
_FNUZ_ARCHITECTURES = frozenset({"gfx940", "gfx941", "gfx942"})


def fp8_is_fnuz(gfx: str) -> bool:
    """Whether the architecture's fp8 is e4m3fnuz (maximum 240) rather than e4m3fn (maximum 448); contract 6.3."""
    return gfx in _FNUZ_ARCHITECTURES


def torch_dtype(number: Format, gfx: str) -> str:
    """The format as AITER's tables spell it on that architecture: `torch.float8_e4m3fn`."""
    if number is Format.FP8:
        return _FP8_FNUZ if fp8_is_fnuz(gfx) else _FP8_FN
    return _TORCH_DTYPE[number]


def format_of(torch_name: str) -> Format | None:
    """The format of a table's dtype cell, whichever flavour of fp8; None for a spelling no recipe has."""
    if torch_name in (_FP8_FN, _FP8_FNUZ):
        return Format.FP8
    return next((number for number, name in _TORCH_DTYPE.items() if name == torch_name), None)


def recipe_of(q_dtype_a: str, q_dtype_w: str, q_type: str) -> Recipe | None:
    """The recipe of three table cells, None where none has them. `per_128x128` is `per_1x128`, as for AITER."""
    a, w = format_of(q_dtype_a), format_of(q_dtype_w)
    q = q_type.removeprefix("QuantType.").replace("per_128x128", "per_1x128")
    return next((r for r in RECIPES.values() if (r.a, r.w, r.q_type.value) == (a, w, q)), None)
