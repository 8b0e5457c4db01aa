"""AITER's `fused_moe`, as serving calls it, with the kernels of one row or with what runs without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from moeshapes.backends.base import NotRunAsNamedError, ShadowedRowError, Stages
from moeshapes.backends.production.account import departures
from moeshapes.backends.production.config import served
from moeshapes.backends.production.library import Library, load
from moeshapes.backends.production.parallel import routing_of
from moeshapes.backends.production.tensors import Weights, kernel_ready
from moeshapes.backends.production.witness import Choice, Witness
from moeshapes.problem import Problem
from moeshapes.verify.lookup import NO_LOOKUP, Lookup
from moeshapes.workload import Call, Layer

_SHOWN = 160
"""Characters of a symbol: a C++ template's may have thousands."""


class ProductionBackend:
    """Backend of `production`: emulated wherever there is no AMD GPU, whatever calls itself AITER there.

    Imports AITER; raises ImportError where it cannot be.
    """

    name = "production"

    def __init__(self) -> None:
        self.library: Library = load()
        self.emulated = torch.version.hip is None or not torch.cuda.is_available()

    def prepare(self, layer: Layer) -> ProductionLayer:
        return ProductionLayer(layer, self.library)


class ProductionLayer:
    """A layer in the kernels' layout, and the arguments that all its calls share."""

    def __init__(self, layer: Layer, library: Library) -> None:
        self.layer = layer
        self.problem = layer.problem
        self.library = library
        self.weights: Weights = kernel_ready(layer, library)

    def arm(self, launch: Mapping[str, Any] | None, token: int, lookup: Lookup = NO_LOOKUP) -> ProductionArm:
        return ProductionArm(self, launch, lookup)

    def __call__(self, call: Call) -> Tensor:
        """bf16 `[M, H]`."""
        routing = routing_of(self.problem, call)
        output: Tensor = self.library.fused_moe.fused_moe(
            call.activations,
            self.weights.w1,
            self.weights.w2,
            routing.topk_weights,
            routing.topk_ids,
            expert_mask=routing.expert_mask,
            w1_scale=self.weights.w1_scale,
            w2_scale=self.weights.w2_scale,
            bias1=self.layer.bias1,
            bias2=self.layer.bias2,
            **arguments_of(self.problem, self.library),
        )
        return output


def arguments_of(problem: Problem, library: Library) -> dict[str, Any]:
    """The arguments of `fused_moe` that are no tensors (contract 5)."""
    activation, passed = problem.activation, problem.pads_as_arguments
    return {
        "activation": library.activation(activation.kind),
        "quant_type": library.q_type(problem.recipe.q_type.value),
        "doweight_stage1": problem.doweight_stage1,
        "hidden_pad": problem.hidden_pad if passed else 0,
        "intermediate_pad": problem.intermediate_pad if passed else 0,
        "swiglu_limit": activation.limit,
        "beta": activation.beta,
        "linear_beta": activation.linear_beta,
        "gate_mode": "interleave" if problem.interleave else "separated",
    }


class ProductionArm:
    """What AITER launches where its table holds one row alone, or all but that row."""

    def __init__(self, prepared: ProductionLayer, launch: Mapping[str, Any] | None, lookup: Lookup) -> None:
        self.prepared = prepared
        self.launch = launch
        self.lookup = lookup
        self.witness = Witness(prepared.library)
        self._table = lookup.alone(launch) if launch else lookup.merged(None)
        self._active = False

    def activate(self) -> AbstractContextManager[None]:
        return self._activated()

    @contextmanager
    def _activated(self) -> Iterator[None]:
        with served(self._table), self.prepared.library.fresh_caches(), self.witness.watching():
            self._active = True
            try:
                yield
            finally:
                self._active = False

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        """Raises RuntimeError outside `activate()`, where AITER would read tables of its own."""
        if not self._active:
            raise RuntimeError("an arm runs while it is active: otherwise other kernels than its own would")
        result = self.witness.run(call.tokens, partial(self.prepared, call))
        if out is None:
            return result
        out[: call.tokens] = result
        return out

    def launched(self) -> list[str]:
        """What AITER chose, and the symbols that a profiler saw.

        Raises NotRunAsNamedError, and ShadowedRowError where the row ran but the merged tables would not choose it.
        """
        if self.launch is not None:
            reasons = departures(self.launch, self.witness)
            if reasons:
                raise NotRunAsNamedError("; ".join(reasons))
            self._refuse_shadowed()
        chosen = [str(stage) for choice in self.witness.choices for stage in choice.stages]
        traced = [symbol[:_SHOWN] for symbols in self.witness.symbols.values() for symbol in symbols]
        return list(dict.fromkeys((*chosen, *traced)))

    def _refuse_shadowed(self) -> None:
        for choice, found in self._in_merged_tables().items():
            if found != choice:
                raise ShadowedRowError(f"AITER's merged tables resolve the row's key to {found}, not to {choice}")

    def _in_merged_tables(self) -> dict[Choice, Choice]:
        """For each choice of this arm what AITER chooses where the whole merged table is there."""
        library = self.prepared.library
        with served(self.lookup.merged(self.launch)), library.fresh_caches():
            return {choice: self.witness.ask_again(question) for choice, question in self.witness.choices.items()}

    def stages(self) -> Stages | None:
        """AITER has no way to run a stage alone with the layouts and scales of the whole call."""
        return None
