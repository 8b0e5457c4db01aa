"""Runs the portable kernels in Triton's interpreter and prints, as JSON, how far each is from its reference.

Arguments: recipes, `sorting`, `quantisers`. The last two print a list of the inputs on which they differ.

In a process of its own: whether Triton interprets is settled when kernels are defined.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from random import Random
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch

from jobs import launch, problem
from moeshapes import oracle
from moeshapes.arithmetic import arithmetic_of
from moeshapes.backends import emulate
from moeshapes.backends.portable.backend import PortableBackend
from moeshapes.backends.portable.quantisers import quantise_activations
from moeshapes.backends.portable.sorting import sort_slots, tile_bound
from moeshapes.problem import Activation, Problem
from moeshapes.quant import Quantised, Spec, quantise
from moeshapes.recipe import RECIPES, Format, QType, Recipe
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


def missorted(trials: int = 40) -> list[str]:
    """Random routings that are not sorted as the emulated backend sorts them, filled up to the bound."""
    random = Random(5)
    return [text for text in (_missorted(random) for _ in range(trials)) if text]


def _missorted(random: Random) -> str:
    experts, block_m = random.randint(1, 12), random.choice([1, 2, 3, 16, 32])
    topk, tokens = random.randint(1, min(experts, 4)), random.choice([1, 2, 9, 400])
    ids = torch.tensor([random.sample(range(experts), topk) for _ in range(tokens)], dtype=torch.int32)
    fixed, exact = sort_slots(ids, experts, block_m), emulate.sort_slots(ids, experts, block_m)
    rows, tiles = exact.ids.numel(), exact.expert.numel()
    right = (
        fixed.tiles == tile_bound(ids.numel(), experts, block_m) >= tiles
        and fixed.ids[:rows].equal(exact.ids)
        and bool((fixed.ids[rows:] == tokens).all())
        and fixed.tile_expert[:tiles].equal(exact.expert.int())
        and bool((fixed.tile_expert[tiles:] == experts).all())
    )
    return "" if right else f"{experts} experts, block_m {block_m}, {ids.tolist()}"


def misquantised() -> list[str]:
    """The specs whose codes or scales differ in a bit from those of quant.quantise, NaN and zero blocks included."""
    generator = torch.Generator().manual_seed(7)
    x = (torch.randn((6, 1408), generator=generator) * torch.logspace(-6, 6, 1408)).bfloat16()
    x[1] = 0
    x[2, 5] = torch.nan
    x[3, :64] = torch.inf
    specs = [
        Spec(Format.FP8, QType.PER_TOKEN),
        Spec(Format.FP8, QType.PER_1X128),
        Spec(Format.FP8, QType.PER_1X32),
        Spec(Format.FP4, QType.PER_1X32),
    ]
    return [str(spec) for spec in specs if not _same(quantise_activations(x, spec), quantise(x, spec))]


def _same(one: Quantised, other: Quantised) -> bool:
    """Values to the bit, zeros' signs aside; where they are not finite it does not matter how."""
    values, wanted = one.dequantise(), other.dequantise()
    broken = ~wanted.isfinite()
    return bool((values == wanted)[~broken].all()) and (~values.isfinite()).equal(broken)


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with torch.inference_mode():
        for name in sys.argv[1:]:
            lists = {"sorting": missorted, "quantisers": misquantised}
            found[name] = lists[name]() if name in lists else shares(RECIPES[name])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
