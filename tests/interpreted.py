"""Runs the portable kernels in Triton's interpreter and prints, as JSON, how far each is from its reference.

In a process of its own: whether Triton interprets is settled when kernels are defined.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

os.environ["TRITON_INTERPRET"] = "1"

import torch

from jobs import launch, problem
from moeshapes import oracle
from moeshapes.arithmetic import arithmetic_of
from moeshapes.backends.portable.backend import PortableBackend
from moeshapes.problem import Activation, Problem
from moeshapes.recipe import RECIPES, QType, Recipe
from moeshapes.verify.numerics import judge, target_of
from moeshapes.workload import draw_calls, draw_layer

TOKENS = 2
ACTIVATIONS = {
    "bf16": Activation("gelu"),
    "a8w4": Activation("silu", limit=2.0),
    "mxfp8": Activation("situv2", beta=4.0, linear_beta=25.0),
}


def problem_for(recipe: str) -> Problem:
    """A layer with pads where scale blocks leave room for them, biases, a shared expert; activations take turns."""
    plain = {"activation": ACTIVATIONS.get(recipe, Activation("swiglu", limit=7.0, alpha=1.702)), "bias": True}
    pads = {} if recipe == "fp8_block" else {"hidden_pad": 32, "intermediate_pad": 32}
    return problem(recipe, expert=5, shared_experts=1, **plain, **pads, doweight_stage1=recipe == "a16w4")


def kernels_for(recipe: Recipe) -> tuple[str, str]:
    formats = f"a{recipe.a.value}_w{recipe.w.value}_bf16_t16x64x128_w4_s2"
    fused = recipe.q_type is QType.PER_1X32 and recipe.quantises_activations
    # fp8 activations are quantised in the epilogue, fp4 ones by the kernel of its own: both paths are run.
    out = f"_{recipe.a.value}" if fused and recipe.name != "mxfp8" else ""
    return f"triton_moe1_{formats}{out}", f"triton_moe2_{formats}_{'reduce' if out else 'atomic'}"


def shares(recipe: Recipe) -> dict[str, float]:
    """Errors over their limits: of the whole, of stage 2 alone, and of kernels that were told of no biases."""
    what, row = problem_for(recipe.name), launch(*kernels_for(recipe))
    arithmetic = arithmetic_of(row, recipe)
    layer = draw_layer(what, 3, torch.device("cpu"), 1 << 20)
    call, *_ = draw_calls(layer, TOKENS, 3)
    (exact,), (modelled,) = oracle.exact(layer, [call]), oracle.modelled(layer, [call], arithmetic)
    target = target_of(exact, modelled, what.topk, arithmetic.modelled)
    arm, biasless = (
        PortableBackend().prepare(drawn).arm(row, TOKENS) for drawn in (layer, replace(layer, bias1=None, bias2=None))
    )
    outputs = {
        "whole": arm.run(call),
        "stage 2": arm.stages().second(call, modelled.intermediate),
        "without biases": biasless.run(call),
    }
    return {name: judge(output, target).worst for name, output in outputs.items()}


def main() -> None:
    torch.set_num_threads(1)
    with torch.inference_mode():
        print(json.dumps({name: shares(RECIPES[name]) for name in sys.argv[1:]}))


if __name__ == "__main__":
    main()
