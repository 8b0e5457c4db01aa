"""A problem holds all of a key and a use that decides numbers."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.problem import Activation, Problem, problem_of
from moeshapes.recipe import RECIPES
from moeshapes.row import Key, UntunedRow
from moeshapes.use import Use

SHAPE = UntunedRow(
    token=32, model_dim=5120, inter_dim=640, expert=385, topk=7, act_type="ActivationType.Silu", dtype="torch.bfloat16",
    q_dtype_a="torch.float8_e4m3fn", q_dtype_w="torch.float4_e2m1fn_x2", q_type="QuantType.per_1x32", use_g1u1=1,
    doweight_stage1=0,
)  # fmt: skip
KEY = Key("gfx950", 256, SHAPE)
USE = Use(
    "deepseek-v4.1-flash/tp4", "target", "a8w4", "silu", "interleave",
    hidden_pad=192, intermediate_pad=64, swiglu_limit=10.0, bias=True, shared_experts=1,
)  # fmt: skip


def test_a_problem_is_taken_from_key_and_use() -> None:
    assert problem_of(KEY, USE) == Problem(
        model_dim=5120, inter_dim=640, expert=385, topk=7, recipe_name="a8w4", fnuz=False,
        activation=Activation("silu", 10.0), hidden_pad=192, intermediate_pad=64, pads_as_arguments=False,
        interleave=True, bias=True, shared_experts=1, doweight_stage1=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "use", "changed"),
    [
        (replace(KEY, gfx="gfx942"), USE, {"fnuz": True}),
        (replace(KEY, shape=replace(SHAPE, doweight_stage1=1)), USE, {"doweight_stage1": True}),
        (replace(KEY, shape=replace(SHAPE, topk=6, expert=384)), USE, {"topk": 6, "expert": 384}),
        (KEY, replace(USE, pads="arguments"), {"pads_as_arguments": True}),
        (KEY, replace(USE, gate_mode="separated"), {"interleave": False}),
        (KEY, replace(USE, recipe="a4w4"), {"recipe_name": "a4w4"}),
        (KEY, replace(USE, bias=False, shared_experts=0), {"bias": False, "shared_experts": 0}),
        (KEY, replace(USE, hidden_pad=0, intermediate_pad=0), {"hidden_pad": 0, "intermediate_pad": 0}),
        (
            KEY,
            replace(USE, activation="situv2", swiglu_limit=None, situ_beta=4.0, situ_linear_beta=25.0),
            {"activation": Activation("situv2", beta=4.0, linear_beta=25.0)},
        ),
        (
            KEY,
            replace(USE, activation="swiglu", swiglu_limit=7.0, swiglu_alpha=1.702),
            {"activation": Activation("swiglu", 7.0, 1.702)},
        ),
    ],
)
def test_each_fact_reaches_the_problem(key: Key, use: Use, changed: dict[str, object]) -> None:
    expected = {field.name: getattr(problem_of(KEY, USE), field.name) for field in fields(Problem)} | changed
    found = problem_of(key, use)
    assert {field.name: getattr(found, field.name) for field in fields(Problem)} == expected


def test_what_decides_no_number_is_not_in_it() -> None:
    other = replace(USE, deployment="other/tp8", block="draft", env={"AITER_BF16_FP8_MOE_BOUND": "0"})
    assert problem_of(replace(KEY, cu_num=64, shape=replace(SHAPE, token=1)), other) == problem_of(KEY, USE)


def test_logical_widths_leave_the_pads_out() -> None:
    problem = problem_of(KEY, USE)
    assert (problem.logical_model_dim, problem.logical_inter_dim) == (4928, 576)


@pytest.mark.parametrize("name", RECIPES)
def test_a_probe_fills_one_scale_block(name: str) -> None:
    problem = replace(problem_of(KEY, USE), recipe_name=name)
    assert problem.recipe is RECIPES[name]
    assert problem.k_block == (128 if name == "fp8_block" else 32)


@given(
    st.builds(
        Problem,
        model_dim=st.integers(32, 8192), inter_dim=st.integers(32, 8192), expert=st.integers(1, 900),
        topk=st.integers(1, 20), recipe_name=st.sampled_from(list(RECIPES)), fnuz=st.booleans(),
        activation=st.builds(Activation, st.sampled_from(["silu", "swiglu"]), st.none() | st.floats(0.1, 100)),
        bias=st.booleans(), shared_experts=st.integers(0, 2), hidden_pad=st.integers(0, 512),
    )
)  # fmt: skip
def test_json_and_back(problem: Problem) -> None:
    assert Problem.from_json(json.loads(json.dumps(problem.as_json()))) == problem
