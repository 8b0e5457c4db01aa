"""A problem: all that decides the numbers of one fused-MoE layer, from a key and a use. Plain data, no torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from moeshapes.recipe import RECIPES, Recipe, fp8_is_fnuz
from moeshapes.row import Key
from moeshapes.use import Use


@dataclass(frozen=True)
class Activation:
    """The activation between the stages and its parameters, None where it has none (contract 6.1)."""

    kind: str
    limit: float | None = None
    alpha: float | None = None
    beta: float | None = None
    linear_beta: float | None = None


@dataclass(frozen=True)
class Problem:
    """One layer on one rank. `model_dim` and `inter_dim` include their pads; `expert` and `topk` include shared
    experts, which come last and are always on. `ep` ranks share the other experts. Dims in elements.
    """

    model_dim: int
    inter_dim: int
    expert: int
    topk: int
    recipe_name: str
    fnuz: bool
    activation: Activation
    hidden_pad: int = 0
    intermediate_pad: int = 0
    pads_as_arguments: bool = False
    interleave: bool = False
    bias: bool = False
    shared_experts: int = 0
    doweight_stage1: bool = False
    ep: int = 1

    @property
    def recipe(self) -> Recipe:
        return RECIPES[self.recipe_name]

    @property
    def logical_model_dim(self) -> int:
        return self.model_dim - self.hidden_pad

    @property
    def logical_inter_dim(self) -> int:
        return self.inter_dim - self.intermediate_pad

    @property
    def k_block(self) -> int:
        """The K extent that a probe token fills: the recipe's scale block, 32 where it has none."""
        return self.recipe.block or 32

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Problem:
        return cls(**{**data, "activation": Activation(**data["activation"])})


def problem_of(key: Key, use: Use) -> Problem:
    """The problem that a lookup of `key` under `use` computes."""
    shape = key.shape
    return Problem(
        model_dim=shape.model_dim,
        inter_dim=shape.inter_dim,
        expert=shape.expert,
        topk=shape.topk,
        recipe_name=use.recipe,
        fnuz=fp8_is_fnuz(key.gfx),
        activation=Activation(use.activation, use.swiglu_limit, use.swiglu_alpha, use.situ_beta, use.situ_linear_beta),
        hidden_pad=use.hidden_pad,
        intermediate_pad=use.intermediate_pad,
        pads_as_arguments=use.pads == "arguments",
        interleave=use.gate_mode == "interleave",
        bias=use.bias,
        shared_experts=use.shared_experts,
        doweight_stage1=bool(shape.doweight_stage1),
        ep=use.ep,
    )
