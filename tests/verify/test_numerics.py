"""Limits by formula on tensors made by hand, and outputs on both sides of them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from moeshapes.oracle import Reference
from moeshapes.verify.numerics import Target, block_norms, bound, by_token, judge, target_of, worst_of

TOKENS, COLUMNS, TOPK = 5, 128, 4


def reference(output: Tensor) -> Reference:
    return Reference(output, torch.zeros(output.shape[0] * TOPK, 8, dtype=torch.float64))


def drawn(seed: int, tokens: int = TOKENS, columns: int = COLUMNS) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((tokens, columns), generator=generator, dtype=torch.float64)


def modelled_target(exact: Tensor, modelled: Tensor | None = None) -> Target:
    return target_of(reference(exact), reference(exact if modelled is None else modelled), TOPK, True)


def spread_error(size: float, columns: int = COLUMNS) -> Tensor:
    """An error of that norm, the same in every column."""
    return torch.full((columns,), size / columns**0.5, dtype=torch.float64)


def test_the_bound_is_that_of_the_protocol() -> None:
    assert bound(4) == 2**-8 * 2
    assert bound(9) == 2**-8 * 2.5


@pytest.mark.parametrize(("share", "passes"), [(0.99, True), (1.01, False)])
def test_a_token_may_be_off_by_b_of_its_size(share: float, passes: bool) -> None:
    exact = drawn(1)
    output = exact.clone()
    output[3] += spread_error(share * bound(TOPK) * float(exact[3].norm()))
    found = judge(output, modelled_target(exact))
    assert found.over_limit == pytest.approx(share)
    assert (found.passed, found.worst_token) == (passes, 3)


def test_the_worst_token_decides_not_the_mean() -> None:
    exact = drawn(2, tokens=1000)
    output = exact.clone()
    output[999] *= 1.02
    found = judge(output, modelled_target(exact))
    assert not found.passed
    assert found.worst_token == 999
    assert found.worst == pytest.approx(0.02 / bound(TOPK))


def test_a_small_token_is_measured_by_a_thousandth_of_the_largest() -> None:
    exact = drawn(3)
    exact[0] *= 1e-6
    largest = float(exact.norm(dim=1).max())
    output = exact.clone()
    output[0] += spread_error(0.5 * bound(TOPK) * 1e-3 * largest)
    assert judge(output, modelled_target(exact)).over_limit == pytest.approx(0.5)


@pytest.mark.parametrize(("share", "passes"), [(0.99, True), (1.01, False)])
def test_a_block_of_32_columns_may_be_off_by_three_b_of_the_rms_block(share: float, passes: bool) -> None:
    exact = drawn(4, columns=32 * 64)
    rms_block = float(exact[2].norm()) / 64**0.5
    output = exact.clone()
    output[2, 320:352] += spread_error(share * 3 * bound(TOPK) * rms_block, 32)
    found = judge(output, modelled_target(exact))
    assert found.over_limit < 0.5
    assert found.block_over_limit == pytest.approx(share)
    assert (found.passed, found.worst_token) == (passes, 2)


def test_a_last_block_may_be_narrow() -> None:
    error = torch.zeros(1, 40, dtype=torch.float64)
    error[0, 33:] = 2.0
    assert block_norms(error).tolist() == [[0.0, pytest.approx(2 * 7**0.5)]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("token", "column"), [(0, 0), (TOKENS - 1, COLUMNS - 1)])
def test_one_nan_or_inf_anywhere_fails(value: float, token: int, column: int) -> None:
    output = drawn(5)
    target = modelled_target(drawn(5))
    assert judge(output, target).passed
    output[token, column] = value
    found = judge(output.bfloat16(), target)
    assert not found.passed
    assert found.bad_values == 1
    assert found.where == f"token {token}, column {column}"
    assert math.isinf(found.worst)


@settings(max_examples=20)
@given(st.integers(0, 32 * 6144 - 1))
def test_one_nan_in_a_large_output_fails(position: int) -> None:
    output = torch.zeros(32, 6144, dtype=torch.bfloat16)
    target = modelled_target(torch.ones(32, 6144, dtype=torch.float64))
    output.view(-1)[position] = math.nan
    assert judge(output, target).bad_values == 1


def test_a_reference_that_is_not_finite_passes_nothing() -> None:
    exact = drawn(6)
    exact[1, 1] = math.nan
    assert not judge(drawn(6), modelled_target(exact)).passed


@pytest.mark.parametrize("is_modelled", [True, False])
def test_a_token_with_no_local_expert_must_be_zero(is_modelled: bool) -> None:
    exact = drawn(7)
    exact[2] = 0
    target = target_of(reference(exact), reference(exact), TOPK, is_modelled)
    assert judge(exact, target).passed
    assert bool(target.floor.isfinite().all())
    for value in (1e-30, -1e-30):
        output = exact.clone()
        output[2, 5] = value
        found = judge(output, target)
        assert (found.passed, found.worst_token) == (False, 2)
    output[2, 5] = -0.0
    assert judge(output, target).passed


def test_a_call_of_zeros_must_be_zeros() -> None:
    nothing = torch.zeros(TOKENS, COLUMNS, dtype=torch.float64)
    target = modelled_target(nothing)
    assert judge(nothing, target).passed
    output = nothing.clone()
    output[4, 4] = 1e-30
    assert not judge(output, target).passed


def test_padded_columns_are_ignored_and_missing_ones_are_not() -> None:
    exact = drawn(8)
    target = modelled_target(exact)
    padded = torch.nn.functional.pad(exact, (0, 64), value=math.nan)
    assert judge(padded, target).passed
    for lacking in (exact[:, :-1], exact[:-1], exact[:1]):
        with pytest.raises(ValueError, match="lacks some of"):
            judge(lacking, target)


def test_a_modelled_kernel_is_held_to_its_arithmetic_not_to_the_exact_result() -> None:
    exact = drawn(9)
    modelled = exact * 1.2
    target = modelled_target(exact, modelled)
    assert judge(modelled, target).worst == 0
    assert not judge(exact, target).passed
    assert target.floor.tolist() == pytest.approx([0.2] * TOKENS)


@pytest.mark.parametrize(("share", "passes"), [(0.99, True), (1.01, False)])
def test_an_unmodelled_kernel_may_be_off_by_the_recipes_floor_and_b(share: float, passes: bool) -> None:
    exact = drawn(10)
    modelled = exact * 1.2
    target = target_of(reference(exact), reference(modelled), TOPK, False)
    output = exact * (1 - share * (0.2 + bound(TOPK)))
    found = judge(output, target)
    assert found.over_limit == pytest.approx(share)
    assert found.passed is passes


def test_slots_of_a_token_stand_together() -> None:
    slots = torch.arange(12.0).reshape(6, 2)
    assert by_token(slots, 3).tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_stage_one_is_held_to_b_of_a_tokens_whole_intermediate() -> None:
    intermediate = torch.ones(2 * TOPK, 8, dtype=torch.float64)
    both = Reference(drawn(11, tokens=2), intermediate)
    limit = target_of(both, both, TOPK, True).intermediate_limit(TOPK)
    assert limit.tolist() == pytest.approx([bound(TOPK) * (8 * TOPK) ** 0.5] * 2)


def test_bad_values_outrank_any_distance() -> None:
    exact = drawn(12)
    target = modelled_target(exact)
    far, bad = exact * 1e30, exact.clone()
    bad[0, 0] = math.nan
    judged = [judge(output, target) for output in (exact, far, bad)]
    assert worst_of(judged) == judged[2]
    assert worst_of(judged[:2]) == judged[1]


def test_what_the_reference_itself_may_be_is_within_the_limit_and_no_more() -> None:
    exact = modelled = reference(drawn(21))
    away = modelled.output.clone()
    away[0] *= 1.05
    either_way = Reference(modelled.output, modelled.intermediate, ((away, modelled.intermediate),))
    assert not judge(away, target_of(exact, modelled, TOPK, True)).passed
    assert judge(away, target_of(exact, either_way, TOPK, True)).passed
    twice_as_far = modelled.output + 3 * (away - modelled.output)
    assert not judge(twice_as_far, target_of(exact, either_way, TOPK, True)).passed
