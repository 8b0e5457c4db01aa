from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.dispatch import (
    BUCKETS,
    MAX_TOKENS,
    Call,
    Caller,
    activation_format,
    bucket_of,
    choose_format,
    is_reachable_bucket,
    tokens_of,
)
from moeshapes.recipe import RECIPES, Format, QType, Recipe


@pytest.mark.parametrize(
    ("tokens", "bucket"),
    [
        *((0, 1), (1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (300, 512)),
        *((tokens, 32768) for tokens in (16385, 32767, 32768, 65536, 131071)),
        *((131072, 131072), (500_000, 131072)),
    ],
)
def test_bucket(tokens: int, bucket: int) -> None:
    assert bucket_of(tokens) == bucket


@given(st.integers(1, MAX_TOKENS))
def test_each_token_count_is_in_its_bucket_alone(tokens: int) -> None:
    assert [bucket for bucket in BUCKETS if tokens in tokens_of(bucket)] == [bucket_of(tokens)]


def test_no_call_looks_up_other_buckets() -> None:
    assert not any(map(is_reachable_bucket, (0, 3, 40, 96, 192, 576, 65536, 262144)))
    with pytest.raises(ValueError, match="96"):
        tokens_of(96)


A = "AITER_BF16_FP8_MOE_BOUND"
B = "GPTOSS_SWIGLU_MXFP4_BF16_BOUND"


@pytest.mark.parametrize(
    ("expected", "tokens", "gfx", "weight", "q_type", "activation", "gates", "env"),
    [
        ("bf16", 8, "gfx950", "bf16", "No", "silu", "separated", {}),
        ("fp8", 8, "gfx942", "fp8", "per_1x128", "silu", "separated", {}),
        ("int8", 8, "gfx942", "int8", "per_Tensor", "silu", "interleave", {}),
        ("bf16", 8, "gfx950", "int4", "per_1x32", "silu", "separated", {}),
        ("fp8", 8, "gfx950", "fp8", "per_1x32", "swiglu", "separated", {}),
        ("bf16", 8, "gfx950", "fp4", "per_1x32", "situv2", "interleave", {}),
        (
            "fp8",
            8,
            "gfx950",
            "fp4",
            "per_1x32",
            "situv2",
            "separated",
            {"AITER_SITUV2_A8W4": "1", "AITER_SITUV2_A4W4": "1"},
        ),
        ("fp4", 8, "gfx950", "fp4", "per_1x32", "situv2", "separated", {"AITER_SITUV2_A4W4": "1"}),
        ("bf16", 255, "gfx950", "fp4", "per_1x32", "swiglu", "separated", {}),
        ("fp4", 256, "gfx950", "fp4", "per_1x32", "swiglu", "separated", {}),
        ("fp4", 1, "gfx950", "fp4", "per_1x32", "swiglu", "separated", {B: "0"}),
        ("bf16", 255, "gfx950", "fp4", "per_1x32", "swiglu", "interleave", {}),
        ("fp8", 256, "gfx950", "fp4", "per_1x32", "swiglu", "interleave", {}),
        ("bf16", 255, "gfx950", "fp4", "per_1x32", "silu", "interleave", {}),
        ("fp8", 1, "gfx950", "fp4", "per_1x32", "silu", "interleave", {A: "0"}),
        ("bf16", 4096, "gfx942", "fp4", "per_1x32", "silu", "interleave", {A: "0"}),
        ("fp4", 1, "gfx950", "fp4", "per_1x32", "silu", "separated", {A: "0"}),
        ("fp4", 1, "gfx1250", "fp4", "per_1x32", "silu", "interleave", {A: "0"}),
        ("fp8", 1, "gfx1250", "fp4", "per_1x32", "silu", "interleave", {"AITER_FORCE_A8W4": "1"}),
    ],
)
def test_activation_format(
    expected: str, tokens: int, gfx: str, weight: str, q_type: str, activation: str, gates: str, env: dict[str, str]
) -> None:
    call = Call(tokens, gfx, Format(weight), QType(q_type), activation, gates, env)
    assert activation_format(call).value == expected


@given(
    recipe=st.sampled_from(list(RECIPES.values())),
    activation=st.sampled_from(["silu", "gelu", "swiglu", "situv2"]),
    gates=st.sampled_from(["separated", "interleave"]),
    gfx=st.sampled_from(["gfx942", "gfx950", "gfx1250"]),
    env=st.dictionaries(st.sampled_from([A, B]), st.integers(-1, 3000).map(str)),
    bucket=st.sampled_from([bucket for bucket in BUCKETS if bucket <= 2048]),
)
def test_reach_agrees_with_trying_every_token_count(
    recipe: Recipe, activation: str, gates: str, gfx: str, env: dict[str, str], bucket: int
) -> None:
    reached = any(
        activation_format(Call(tokens, gfx, recipe.w, recipe.q_type, activation, gates, env)) is recipe.a
        for tokens in tokens_of(bucket)
    )
    assert Caller(gfx, recipe, activation, gates, env).reaches(bucket) is reached


def fp4_call(tokens: int, activation: str, gates: str, env: dict[str, str]) -> Call:
    return Call(tokens, "gfx950", Format.FP4, QType.PER_1X32, activation, gates, env)


def test_the_choice_names_the_rule_and_the_variable() -> None:
    by_default = choose_format(fp4_call(100, "swiglu", "separated", {})).reason
    assert by_default == f"per_1x32, fp4 weights, swiglu, separated gates: 100 < 256 ({B} by default)"
    assert choose_format(fp4_call(300, "silu", "interleave", {A: "300"})).reason.endswith(f": 300 >= 300 ({A})")
    situv2 = choose_format(fp4_call(1, "situv2", "separated", {"AITER_SITUV2_A4W4": "1"}))
    assert situv2.reason.endswith("AITER_SITUV2_A4W4 is 1")
    assert choose_format(fp4_call(1, "silu", "separated", {})).reason == "per_1x32, fp4 weights, separated gates"


def test_a_bucket_asks_for_two_formats_where_a_bound_lies_in_it() -> None:
    caller = Caller("gfx950", RECIPES["a16w4"], "swiglu", "separated", {})
    assert caller.asks(128) == {65: Format.BF16}
    assert caller.asks(256) == {129: Format.BF16, 256: Format.FP4}
    assert caller.asks(512) == {257: Format.FP4}
