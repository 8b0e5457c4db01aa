"""The emulated backend: its sorting against plain Python, its layout, its buffers, and what kernels ignore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jobs import MXMOE, job, launch, problem
from moeshapes import oracle
from moeshapes.arithmetic import Departure, arithmetic_of, default_arithmetic
from moeshapes.backends.emulate import EmulateBackend, gate_up_order, sort_slots
from moeshapes.problem import Activation, Problem
from moeshapes.recipe import RECIPES
from moeshapes.verify.check import LayerCache, check
from moeshapes.verify.numerics import judge, target_of
from moeshapes.workload import Call, Layer, draw_calls, draw_layer

SWIGLU = Activation("swiglu", limit=7.0, alpha=1.702)
A8W4 = ("flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui", "flydsl_moe2_afp8_wfp4_bf16_t32x128x256")


def drawn(what: Problem, tokens: int = 6, seed: int = 3) -> tuple[Layer, Call]:
    layer = draw_layer(what, seed, torch.device("cpu"), 1 << 20)
    return layer, draw_calls(layer, tokens, seed)[0]


def result_of(what: Problem, **changes: Any) -> Mapping[str, Any]:
    with torch.inference_mode():
        return check(job(what=what, **changes), EmulateBackend(), LayerCache())


def kernel_launch(first: str, second: str) -> dict[str, Any]:
    return launch(first, second, 16 if "mxmoe" in first else 32)


# --- sorting


def sorted_by_hand(topk_ids: Sequence[Sequence[int]], experts: int, block_m: int) -> tuple[list[int], list[int]]:
    """Sorted ids and tile experts: slots expert by expert, in the order of their tokens, filled up to block_m."""
    ids, tile_experts = list[int](), list[int]()
    for expert in range(experts):
        own = [(token, slot) for token, row in enumerate(topk_ids) for slot, e in enumerate(row) if e == expert]
        while len(own) % block_m:
            own.append((len(topk_ids), 0))
        ids += [slot << 24 | token for token, slot in own]
        tile_experts += [expert] * (len(own) // block_m)
    return ids, tile_experts


@given(data=st.data(), experts=st.integers(1, 12), block_m=st.sampled_from([1, 2, 3, 16, 32]))
def test_slots_are_sorted_as_by_hand(data: st.DataObject, experts: int, block_m: int) -> None:
    topk = data.draw(st.integers(1, experts))
    slots = st.permutations(range(experts)).map(lambda order: order[:topk])
    topk_ids = data.draw(st.lists(slots, min_size=1, max_size=20))
    tiles = sort_slots(torch.tensor(topk_ids, dtype=torch.int32), experts, block_m)
    ids, tile_experts = sorted_by_hand(topk_ids, experts, block_m)
    assert tiles.ids.tolist() == ids
    assert tiles.expert.tolist() == tile_experts
    assert (tiles.ids.dtype, tiles.expert.dtype) == (torch.int32, torch.int32)
    assert tiles.live_rows().tolist() == [row for row, packed in enumerate(ids) if packed & 0xFFFFFF < len(topk_ids)]


# --- layout


def test_separated_gates_come_before_ups() -> None:
    assert gate_up_order(problem(inter_dim=32)).tolist() == list(range(64))


def test_interleaved_gates_and_ups_take_turns_by_sixteen_rows() -> None:
    order = gate_up_order(problem(inter_dim=32, interleave=True)).tolist()
    assert order == [*range(16), *range(32, 48), *range(16, 32), *range(48, 64)]


@pytest.mark.parametrize("recipe", ["a8w4", "mxfp8", "bf16"])
def test_the_gate_mode_changes_the_layout_and_not_the_result(recipe: str) -> None:
    outputs = []
    for interleave in (False, True):
        layer, call = drawn(problem(recipe, interleave=interleave, bias=True))
        outputs.append(EmulateBackend().prepare(layer).arm(None, 8).run(call))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=2**-7, atol=2**-7)


# --- what a call returns


def test_an_out_buffer_gets_the_result_and_nothing_past_it() -> None:
    layer, call = drawn(problem())
    arm = EmulateBackend().prepare(layer).arm(None, 8)
    plain = arm.run(call)
    out = torch.full((call.tokens + 2, layer.problem.model_dim), 3.0, dtype=torch.bfloat16)
    assert arm.run(call, out) is out
    assert torch.equal(out[: call.tokens], plain)
    assert bool((out[call.tokens :] == 3.0).all())
    assert (plain.dtype, plain.shape) == (torch.bfloat16, (call.tokens, layer.problem.model_dim))


def test_inputs_are_left_as_they_were() -> None:
    layer, call = drawn(problem())
    before = [tensor.clone() for tensor in (call.activations, call.topk_ids, call.topk_weights)]
    EmulateBackend().prepare(layer).arm(None, 8).run(call)
    after = (call.activations, call.topk_ids, call.topk_weights)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_it_says_that_it_is_emulated_and_what() -> None:
    layer, _ = drawn(problem())
    arm = EmulateBackend().prepare(layer).arm(None, 8)
    (launched,) = arm.launched()
    assert launched.startswith("emulated ")
    assert "block_m=32" in launched
    assert EmulateBackend.emulated


@pytest.mark.parametrize("recipe", ["a4w4", "fp8_token", "a16wi4"])
def test_the_stages_one_after_the_other_are_the_whole(recipe: str) -> None:
    layer, call = drawn(problem(recipe, intermediate_pad=32, bias=True))
    arm = EmulateBackend().prepare(layer).arm(None, 8)
    stages = arm.stages()
    intermediate = stages.first(call)
    assert intermediate.shape == (call.tokens * layer.problem.topk, layer.problem.logical_inter_dim)
    torch.testing.assert_close(stages.second(call, intermediate), arm.run(call), rtol=2**-6, atol=2**-8)


# --- honest

LOADED: dict[str, dict[str, Any]] = {
    "plain": {},
    "padded, biased, limited": {
        "model_dim": 384,
        "hidden_pad": 64,
        "inter_dim": 256,
        "intermediate_pad": 96,
        "bias": True,
        "shared_experts": 1,
        "activation": SWIGLU,
        "interleave": True,
    },
    "pads as arguments": {"hidden_pad": 64, "intermediate_pad": 32, "pads_as_arguments": True},
    "weighted in stage 1": {"doweight_stage1": True, "activation": Activation("gelu", limit=10.0)},
    "situv2, fnuz": {"activation": Activation("situv2", beta=4.0, linear_beta=25.0), "fnuz": True, "topk": 1},
}


@pytest.mark.parametrize("changes", LOADED.values(), ids=LOADED)
@pytest.mark.parametrize("recipe", RECIPES)
def test_an_honest_default_plan_passes(recipe: str, changes: dict[str, Any]) -> None:
    result = result_of(problem(recipe, **changes), token=8, counts=(8, 5))
    assert result["verdict"] == "pass", result["reasons"]
    assert result["numerics"]["compared_with"] == "modelled"
    assert all(count["deterministic"] for count in result["numerics"]["counts"].values())
    assert max(result["numerics"]["stages"].values()) <= 1


HONEST_ROWS = {
    "a4w4, mxmoe": ("a4w4", MXMOE, {}),
    "a4w4, fused": (
        "a4w4",
        ("flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2_fp4", "flydsl_moe2_afp4_wfp4_bf16_t32x128x256_reduce"),
        {},
    ),
    "a8w4, fused": ("a8w4", (f"{A8W4[0]}_fp8", f"{A8W4[1]}_atomic"), {"activation": SWIGLU}),
    "a8w4, layout": (
        "a8w4",
        (f"{A8W4[0]}_fp8", "flydsl_moe2_layout_afp8_wfp4_bf16_t32x128x256_atomic_sbm32"),
        {"interleave": True},
    ),
    "a8w4, fp8 slots": ("a8w4", (f"{A8W4[0]}_fp8", "opus_moe2_afp8_wfp4_fp8_t32x256x256_sbm32"), {}),
    "a16w4": (
        "a16w4",
        ("flydsl_moe1_abf16_wfp4_bf16_t32x32x256", "flydsl_moe2_abf16_wfp4_bf16_t32x128x128_atomic"),
        {},
    ),
    "fp8_block, assembly": (
        "fp8_block",
        ("_ZN5aiter50fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256E", "Null"),
        {"model_dim": 512},
    ),
}


@pytest.mark.parametrize(("recipe", "kernels", "changes"), HONEST_ROWS.values(), ids=HONEST_ROWS)
def test_an_honest_row_passes(recipe: str, kernels: tuple[str, str], changes: dict[str, Any]) -> None:
    one_stage = {"run_1stage": int("Null" in kernels)}
    fields = {**kernel_launch(kernels[0], kernels[1].replace("Null", "")), **one_stage}
    result = result_of(problem(recipe, **changes), launch=fields)
    assert result["verdict"] == "pass", result["reasons"]
    assert result["numerics"]["baseline"]["over_limit"] <= 1


# --- the arithmetic that a name states is what is computed


def output_of(what: Problem, fields: dict[str, Any] | None) -> Tensor:
    layer, call = drawn(what, tokens=16)
    return EmulateBackend().prepare(layer).arm(fields, 16).run(call).double()


def test_fused_and_separate_requantisation_differ() -> None:
    separate = output_of(problem("a8w4"), kernel_launch(A8W4[0], f"{A8W4[1]}_atomic"))
    fused = output_of(problem("a8w4"), kernel_launch(f"{A8W4[0]}_fp8", f"{A8W4[1]}_atomic"))
    assert not torch.equal(separate, fused)


def test_reduce_and_atomics_round_differently() -> None:
    what = problem("bf16", topk=8)
    layer, call = drawn(what, tokens=16)
    prepared = EmulateBackend().prepare(layer)
    atomic = prepared.arm(None, 16)
    reduced = prepared.arm(None, 16)
    reduced.arithmetic = replace(atomic.arithmetic, combine="reduce")
    target = {
        name: oracle.modelled(layer, [call], replace(atomic.arithmetic, combine=name))[0]
        for name in ("atomic", "reduce")
    }
    distance = {
        name: float((arm.run(call).double() - target["reduce"].output).norm())
        for name, arm in (("atomic", atomic), ("reduce", reduced))
    }
    assert distance["reduce"] < distance["atomic"]


def test_a_kernel_of_one_arithmetic_is_told_from_another() -> None:
    what = problem("a4w4")
    layer, call = drawn(what, tokens=16)
    named = arithmetic_of(kernel_launch(*MXMOE), what.recipe)
    other = default_arithmetic(what.recipe, 16)
    output = EmulateBackend().prepare(layer).arm(kernel_launch(*MXMOE), 16).run(call)
    (exact,) = oracle.exact(layer, [call])
    shares = [
        judge(output, target_of(exact, oracle.modelled(layer, [call], arithmetic)[0], what.topk, True)).worst
        for arithmetic in (named, other)
    ]
    assert shares[0] <= 1 < shares[1]


# --- what a kernel ignores

IGNORED = {
    "mxmoe under a limit": ("a4w4", MXMOE, {"activation": Activation("silu", limit=2.0)}, [Departure.LIMIT_IGNORED]),
    "mxmoe for swiglu": ("a4w4", MXMOE, {"activation": SWIGLU}, [Departure.LIMIT_IGNORED, Departure.ALWAYS_SILU]),
    "mxmoe for gelu": ("a4w4", MXMOE, {"activation": Activation("gelu")}, [Departure.ALWAYS_SILU]),
    "mxmoe with biases": ("a4w4", MXMOE, {"bias": True}, [Departure.BIAS_DROPPED]),
    "CK with biases": (
        "fp8_token",
        (
            "moe_ck2stages_gemm1_256x32x64x256_1x4_TypeCast_v1_Nswizzle0_Quant2_MulRoutedWeight0_silu_F8_F8_B16",
            "moe_ck2stages_gemm2_256x32x128x256_1x4_TypeCast_v1_Nswizzle0_Quant2_MulRoutedWeight1_F8_F8_B16",
        ),
        {"bias": True},
        [Departure.BIAS_DROPPED],
    ),
    "a16w4 under a limit": (
        "a16w4",
        ("flydsl_moe1_abf16_wfp4_bf16_t32x32x256", "flydsl_moe2_abf16_wfp4_bf16_t32x128x128_atomic"),
        {"activation": Activation("silu", limit=2.0)},
        [Departure.LIMIT_IGNORED],
    ),
}


@pytest.mark.parametrize(("recipe", "kernels", "changes", "departures"), IGNORED.values(), ids=IGNORED)
def test_a_row_whose_kernel_ignores_the_layer_fails_and_says_why(
    recipe: str, kernels: tuple[str, str], changes: dict[str, Any], departures: list[Departure]
) -> None:
    fields = kernel_launch(*kernels)
    result = result_of(problem(recipe, **changes), launch=fields)
    assert result["verdict"] == "fail"
    where, *why = (reason for reason in result["reasons"] if not reason.startswith("stage "))
    assert where.startswith("at 4 tokens: token ")
    assert why == [each.value for each in departures]
    assert result["numerics"]["baseline"]["over_limit"] <= 1
    assert not result["numerics"]["baseline"]["bitwise_equal"]


def test_a_kernel_that_ignores_what_the_layer_lacks_passes_without_a_word() -> None:
    result = result_of(problem("a4w4"), launch=kernel_launch(*MXMOE))
    assert (result["verdict"], result["reasons"]) == ("pass", [])
