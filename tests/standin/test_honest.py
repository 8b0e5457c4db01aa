"""The stand-in agrees with the references: two decodings, two quantisers and two layers that share no code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from moeshapes.arithmetic import Arithmetic, arithmetic_of, default_arithmetic
from moeshapes.oracle import exact, modelled
from moeshapes.problem import Activation, Problem
from moeshapes.recipe import RECIPES
from moeshapes.verify.numerics import Judgement, judge, target_of
from moeshapes.workload import Call, Layer
from standin.aiter_of_test import INTERLEAVED, SITUV2, SWIGLU, TOKENS, drawn, fused_moe, problem, row_of, serving
from standin.prepared import arguments_of

ON_GFX942 = [
    name for name, recipe in RECIPES.items() if recipe.q_type.value in ("per_1x128", "per_Token", "per_Tensor")
]
ASM_BLOCK = "_ZN5aiter50fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_32x256_pf3E"
PAIRS = {
    "flydsl, fused": (
        "a8w4", "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui_fp8", "flydsl_moe2_afp8_wfp4_bf16_t32x128x256_reduce",
    ),
    "flydsl, atomic": (
        "a4w4", "flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w3_fp4", "flydsl_moe2_afp4_wfp4_bf16_t32x256x256_atomic",
    ),
    "flydsl, layout stage 2": (
        "a8w4", "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_gui", "flydsl_moe2_layout_afp8_wfp4_bf16_t32x256x256_reduce",
    ),
    "mxmoe": (
        "a4w4", "flydsl_mxmoe_g1_a4w4_32x256x256_nt", "flydsl_mxmoe_g2_a4w4_32x256x256_atomic",
    ),
    "mxmoe, reduced": (
        "a4w4", "flydsl_mxmoe_g1_a4w4_128x256x256", "flydsl_mxmoe_g2_a4w4_128x256x256_cshuffle",
    ),
    "a16wi4": (
        "a16wi4", "flydsl_moe1_abf16_wint4_bf16_t32x128x128_kw2", "flydsl_moe2_abf16_wint4_bf16_t32x128x128_atomic",
    ),
    "assembly, then ck": ("fp8_block", ASM_BLOCK, ""),
}  # fmt: skip


def judged(layer: Layer, call: Call, arithmetic: Arithmetic, output: torch.Tensor) -> Judgement:
    target = target_of(
        exact(layer, [call])[0], modelled(layer, [call], arithmetic)[0], layer.problem.topk, arithmetic.modelled
    )
    return judge(output, target)


def check(folder: Path, what: Problem, gfx: str = "gfx950", **settings: Any) -> None:
    layer, call = drawn(what)
    with serving(folder, gfx=gfx, **settings):
        output = fused_moe(**arguments_of(layer, call))
    assert judged(layer, call, default_arithmetic(what.recipe, TOKENS), output).passed


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe(tmp_path: Path, recipe: str) -> None:
    check(tmp_path, problem(recipe))


@pytest.mark.parametrize("recipe", ON_GFX942)
def test_gfx942(tmp_path: Path, recipe: str) -> None:
    check(tmp_path, problem(recipe, fnuz=True), gfx="gfx942")


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "a16w4"])
def test_both_conventions_of_pads(tmp_path: Path, recipe: str) -> None:
    for passed in (False, True):
        check(tmp_path, problem(recipe, hidden_pad=64, intermediate_pad=96, pads_as_arguments=passed))


@pytest.mark.parametrize(
    ("recipe", "interleave", "bound"), [("a8w4", True, 0), ("a16w4", True, 256), ("a16w4", False, 0)]
)
def test_biases_and_limits(tmp_path: Path, recipe: str, interleave: bool, bound: int) -> None:
    what = problem(recipe, bias=True, activation=SWIGLU, interleave=interleave)
    check(tmp_path, what, env={"AITER_BF16_FP8_MOE_BOUND": str(bound)})


@pytest.mark.parametrize("recipe", ["a4w4", "a8w4", "a16w4"])
def test_situv2(tmp_path: Path, recipe: str) -> None:
    env = {"AITER_SITUV2_A8W4": str(int(recipe == "a8w4")), "AITER_SITUV2_A4W4": str(int(recipe == "a4w4"))}
    check(tmp_path, problem(recipe, activation=SITUV2), env=env)


@pytest.mark.parametrize("recipe", ["fp8_token", "bf16"])
def test_gelu(tmp_path: Path, recipe: str) -> None:
    check(tmp_path, problem(recipe, activation=Activation("gelu")))


@pytest.mark.parametrize("recipe", ["fp8_token", "fp8_block"])
def test_weights_in_stage_1_and_shared_experts(tmp_path: Path, recipe: str) -> None:
    check(tmp_path, problem(recipe, doweight_stage1=True, shared_experts=1))


@pytest.mark.parametrize("pair", PAIRS)
def test_the_arithmetic_that_names_state(tmp_path: Path, pair: str) -> None:
    recipe, kernel1, kernel2 = PAIRS[pair]
    what = problem(recipe)
    layer, call = drawn(what)
    block = 128 if "128x256x256" in kernel1 and "mxmoe" in kernel1 else 32
    row = row_of(what, kernel1, kernel2, block_m=block)
    with serving(tmp_path, row) as aiter:
        output = fused_moe(**arguments_of(layer, call))
        ran = [launch.name for launch in aiter.standin.launched() if launch.stage]
    assert ran == [kernel1, kernel2]
    arithmetic = arithmetic_of({**row, "kernelName2": kernel2}, what.recipe)
    assert judged(layer, call, arithmetic, output).passed


def test_another_arithmetic_is_told_apart(tmp_path: Path) -> None:
    """What the pairs above prove: references of other names do not pass, here of what rounds to bf16 before fp4."""
    recipe, kernel1, kernel2 = PAIRS["flydsl, atomic"]
    what = problem(recipe)
    layer, call = drawn(what)
    with serving(tmp_path, row_of(what, kernel1, kernel2)):
        output = fused_moe(**arguments_of(layer, call))
    own = arithmetic_of(row_of(what, kernel1, kernel2), what.recipe)
    assert judged(layer, call, own, output).passed
    assert not judged(layer, call, replace(own, intermediate_from="bf16"), output).passed


def test_experts_of_other_ranks(tmp_path: Path) -> None:
    """Ids are global, the mask names this rank's experts, the last slot is fake; a token without any is exactly 0."""
    what = problem("fp8_block", expert=4)
    layer, call = drawn(what)
    first, every = 2, 9
    mask = torch.zeros(every + 1, dtype=torch.int32)
    mask[first : first + what.expert] = 1
    ids = call.topk_ids + first
    ids[0] = torch.tensor([0, 1, 7])
    fake = torch.full((TOKENS, 1), every, dtype=torch.int32)
    with serving(tmp_path):
        arguments = arguments_of(layer, call)
        arguments |= {
            "topk_ids": torch.cat((ids, fake), dim=1),
            "topk_weight": torch.cat((call.topk_weights, torch.ones(TOKENS, 1)), dim=1),
            "expert_mask": mask,
        }
        output = fused_moe(**arguments)
        plain = fused_moe(**arguments_of(layer, call))
    assert (output[0] == 0).all()
    assert torch.equal(output[1:], plain[1:])


def test_only_local_tokens_are_computed(tmp_path: Path) -> None:
    what = problem("fp8_token")
    layer, call = drawn(what)
    with serving(tmp_path):
        arguments = arguments_of(layer, call)
        output = fused_moe(**arguments, num_local_tokens=torch.tensor([3], dtype=torch.int32))
        plain = fused_moe(**arguments)
    assert torch.equal(output[:3], plain[:3])
    assert output[3].isnan().all()


def test_columns_of_skipped_tiles_are_not_written(tmp_path: Path) -> None:
    """Reduced in a buffer that is not initialised, and only as wide as the tiles with a real column."""
    recipe, kernel1, kernel2 = PAIRS["flydsl, fused"]
    what = problem(recipe, hidden_pad=192, pads_as_arguments=True)
    layer, call = drawn(what)
    with serving(tmp_path, row_of(what, kernel1, kernel2)):
        output = fused_moe(**arguments_of(layer, call))
    assert output[:, 384:].isnan().all()
    assert not output[:, :384].isnan().any()


def test_gate_modes_are_those_of_the_recipes() -> None:
    assert {name for name, recipe in RECIPES.items() if recipe.a.value == "fp8" and recipe.block == 32} == {
        *INTERLEAVED
    }
