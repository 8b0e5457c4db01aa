"""What a call computes: the roundings and the layout that the chosen kernels' names state (contract 3.4, 4 and 6.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..ops.enum import ActivationType, QuantType
from ..utility import dtypes
from .call import Call
from .formats import short
from .numbers import Rounding
from .trace import Launch


@dataclass(frozen=True)
class Activation:
    """The activation that a kernel runs; an infinite limit clamps nothing."""

    kind: str
    limit: float = math.inf
    beta: float = 1.0
    linear_beta: float = 1.0


@dataclass(frozen=True)
class FirstStage:
    """feed: how activations are rounded; fused: whether the epilogue rounds its own fp32 result; interleaved: how it
    reads w1; skips_pads: whether it leaves padded columns of the intermediate alone.
    """

    launch: Launch
    activation: Activation
    feed: Rounding
    interleaved: bool = False
    bias: bool = False
    fused: Rounding | None = None
    skips_pads: bool = False


@dataclass(frozen=True)
class SecondStage:
    """reduces: slots are stored as bf16 and summed in fp32, rather than added into the output as bf16 one by one.

    slot_columns: columns of a slot that share an e8m0 scale where slots are stored as fp8, 0 where they are not.
    written: output columns that are written at all.
    """

    launches: tuple[Launch, ...]
    written: int
    bias: bool = False
    reduces: bool = False
    slot_columns: int = 0


@dataclass(frozen=True)
class Plan:
    """Both stages, and how the intermediate between them is rounded."""

    first: FirstStage
    second: SecondStage
    hidden: Rounding


def recipe_rounding(call: Call, a: torch.dtype) -> Rounding:
    """How the recipe rounds activations, and the intermediate where no epilogue does."""
    if a in (dtypes.bf16, dtypes.fp16) or call.q_type is QuantType.No:
        return Rounding()
    number = "fp8_fnuz" if a is torch.float8_e4m3fnuz else short(a)
    group = {
        QuantType.per_1x32: "1x32",
        QuantType.per_1x128: "1x128",
        QuantType.per_Token: "row",
        QuantType.per_Tensor: "tensor",
    }[call.q_type]
    return Rounding(number, group)


_KINDS = {
    ActivationType.Silu: "silu",
    ActivationType.Gelu: "gelu",
    ActivationType.Swiglu: "swiglu",
    ActivationType.Situv2: "situv2",
}
HARD_SWIGLU_LIMIT = 7.0


def kind_of(call: Call) -> str:
    return _KINDS[call.activation]


def passed_limit(call: Call, kind: str) -> float:
    """The limit of kernels that take one: 0 and None mean none, which for Swiglu is 7."""
    return float(call.swiglu_limit or (HARD_SWIGLU_LIMIT if kind == "swiglu" else math.inf))


def hard_limit(kind: str) -> float:
    """The limit of kernels that take none."""
    return HARD_SWIGLU_LIMIT if kind == "swiglu" else math.inf
