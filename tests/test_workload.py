"""What a verification feeds a kernel must be able to show each fault that it looks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from moeshapes.problem import Activation, Problem
from moeshapes.quant import Quantised
from moeshapes.recipe import RECIPES
from moeshapes.workload import POOL_PRIMES, Call, Layer, draw_calls, draw_layer, expert_rows, pool_size

CPU = torch.device("cpu")
ALL = 10**9
PROBLEM = Problem(
    model_dim=512, inter_dim=256, expert=9, topk=4, recipe_name="a8w4", fnuz=False, activation=Activation("silu", 10.0),
    bias=True, shared_experts=1,
)  # fmt: skip
PADDED = replace(PROBLEM, hidden_pad=192, intermediate_pad=64)


def layer_of(problem: Problem, seed: int = 1, max_elements: int = ALL) -> Layer:
    return draw_layer(problem, seed, CPU, max_elements)


def expanded(weights: list[Quantised]) -> Tensor:
    """fp64 `[sets, rows, K]`."""
    return torch.stack([weight.dequantise(torch.float64) for weight in weights])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    shared = draw(st.integers(0, 2))
    slots = draw(st.integers(1, 8))
    return Problem(
        model_dim=128 * draw(st.integers(2, 3)), inter_dim=128 * draw(st.integers(1, 2)),
        expert=shared + slots + draw(st.integers(0, 40)), topk=slots + shared,
        recipe_name=draw(st.sampled_from(list(RECIPES))), fnuz=draw(st.booleans()),
        activation=Activation("silu", draw(st.none() | st.floats(1, 20))),
        hidden_pad=draw(st.sampled_from([0, 32, 128])), intermediate_pad=draw(st.sampled_from([0, 32, 64])),
        bias=draw(st.booleans()), shared_experts=shared,
    )  # fmt: skip


# --- calls


@settings(max_examples=30)
@given(problem=problems(), tokens=st.integers(1, 17), seed=st.integers(0, 2**31))
def test_routing_of_every_call_is_what_a_router_gives(problem: Problem, tokens: int, seed: int) -> None:
    shared = problem.shared_experts
    for call in draw_calls(layer_of(problem, max_elements=1), tokens, seed):
        assert call.tokens == tokens
        assert call.topk_ids.shape == call.topk_weights.shape == (tokens, problem.topk)
        assert (call.topk_ids.dtype, call.topk_weights.dtype) == (torch.int32, torch.float32)
        assert call.activations.shape == (tokens, problem.model_dim)
        assert call.activations.dtype is torch.bfloat16
        assert all(t.is_contiguous() for t in (call.activations, call.topk_ids, call.topk_weights))
        for ids in call.topk_ids.tolist():
            assert len(set(ids)) == problem.topk
            assert ids[problem.topk - shared :] == list(range(problem.expert - shared, problem.expert))
            assert all(0 <= expert < problem.expert - shared for expert in ids[: problem.topk - shared])


@settings(max_examples=30)
@given(problem=problems(), tokens=st.integers(1, 17), seed=st.integers(0, 2**31))
def test_probes_reach_one_block_of_one_expert_and_are_recorded(problem: Problem, tokens: int, seed: int) -> None:
    _, plain_first, probe_first = draw_calls(layer_of(problem, max_elements=1), tokens, seed)
    for call, probing in ((plain_first, range(1, tokens, 2)), (probe_first, range(0, tokens, 2))):
        assert len(call.probes) == len(probing)
        for token, pair in zip(probing, call.probes, strict=True):
            assert probed(call, token, problem.k_block) == pair
        for token in set(range(tokens)) - set(probing):
            assert bool((call.topk_weights[token] > 0).all())


def probed(call: Call, token: int, block: int) -> tuple[int, int]:
    """The one expert of weight 1 and the one K block that is not zero."""
    weights = call.topk_weights[token]
    assert sorted(weights.tolist()) == [0.0] * (len(weights) - 1) + [1.0]
    (k_block,) = (call.activations[token].nonzero().flatten() // block).unique().tolist()
    return int(call.topk_ids[token, int(weights.argmax())]), k_block


def test_probes_come_to_every_expert_and_every_block() -> None:
    layer = layer_of(replace(PADDED, expert=6, topk=3), max_elements=1)
    pairs = {pair for call in draw_calls(layer, 512, 5) for pair in call.probes}
    assert pairs == {(expert, block) for expert in range(6) for block in range(10)}


def test_routed_weights_are_renormalised_and_shared_ones_are_one() -> None:
    production = draw_calls(layer_of(PROBLEM, max_elements=1), 64, 3)[0]
    assert bool((production.topk_weights[:, 3] == 1).all())
    assert torch.allclose(production.topk_weights[:, :3].sum(dim=1), torch.ones(64))
    assert production.probes == ()


def test_the_load_is_skewed() -> None:
    problem = replace(PROBLEM, expert=64, topk=4, shared_experts=0)
    load = draw_calls(layer_of(problem, max_elements=1), 1024, 3)[0].topk_ids.flatten().bincount(minlength=64)
    # Uniform routing would give each 64 of 4096, give or take 8.
    assert int(load.max()) > 2 * 64
    assert int(load.min()) < 64 / 2


def test_production_like_activations_have_outlier_channels_and_plain_ones_have_none() -> None:
    layer = layer_of(replace(PROBLEM, model_dim=4096), max_elements=1)
    production, plain, _ = draw_calls(layer, 64, 3)
    outliers = channel_rms(production.activations) > 8
    assert 5 <= int(outliers.sum()) <= 60
    assert bool((channel_rms(plain.activations[::2]) < 2).all())


def channel_rms(x: Tensor) -> Tensor:
    """Each channel's RMS over that of a typical channel."""
    rms = x.float().square().mean(dim=0).sqrt()
    return rms / rms.median()


def test_calls_share_no_inputs() -> None:
    for tokens in (1, 2, 33):
        for one, other in combinations(draw_calls(layer_of(PROBLEM, max_elements=1), tokens, 3), 2):
            rows = (one.activations[:, None] == other.activations[None]).all(dim=2)
            assert not rows.any()


def test_all_three_kinds_are_seen_in_every_count_of_tokens() -> None:
    layer = layer_of(PROBLEM, max_elements=1)
    assert [len(call.probes) for call in draw_calls(layer, 1, 3)] == [0, 0, 1]
    assert [len(call.probes) for call in draw_calls(layer, 2, 3)] == [0, 1, 1]


def test_seeds_reproduce_and_differ() -> None:
    def tensors(seed: int) -> list[Tensor]:
        layer = layer_of(PROBLEM, seed, max_elements=1)
        calls = [t for call in draw_calls(layer, 5, seed) for t in (call.activations, call.topk_ids, call.topk_weights)]
        assert layer.bias1 is not None
        return [layer.w1[0].codes, layer.w2[1].codes, layer.bias1, layer.channel_gain, *calls]

    assert all(torch.equal(one, again) for one, again in zip(tensors(4), tensors(4), strict=True))
    assert not any(torch.equal(one, other) for one, other in zip(tensors(4), tensors(5), strict=True))


# --- weights


@pytest.mark.parametrize("name", RECIPES)
def test_pads_are_zero_and_all_else_is_live(name: str) -> None:
    layer = layer_of(replace(PADDED, recipe_name=name), max_elements=1)
    assert layer.bias1 is not None
    assert layer.bias2 is not None
    gate_and_up = (torch.arange(512) % 256) < 192
    columns = torch.arange(512) < 320
    for weights, rows, live in ((layer.w1, gate_and_up, columns), (layer.w2, columns, gate_and_up[:256])):
        values = expanded(weights)
        assert not values[:, ~rows].any()
        assert not values[:, :, ~live].any()
        per_row, per_column = values[:, rows].any(dim=2), values[:, :, live].any(dim=1)
        assert bool(per_row.all())
        assert bool(per_column.all())
    assert not layer.bias1[:, ~gate_and_up].any()
    assert not layer.bias2[:, ~columns].any()
    for call in draw_calls(layer, 5, 1):
        assert not call.activations[:, 320:].any()


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("fnuz", [False, True])
def test_weights_use_their_formats_range_and_have_a_gain_of_about_one(name: str, fnuz: bool) -> None:
    layer = layer_of(replace(PROBLEM, recipe_name=name, fnuz=fnuz), max_elements=1)
    for weights, k in ((layer.w1, 512), (layer.w2, 256)):
        values = expanded(weights)
        assert bool(values.isfinite().all())
        assert 0.6 < float(values.square().mean().sqrt() * k**0.5) < 1.9
        assert float(values.abs().max() * k**0.5) > 2.5
        assert abs(float(values.mean() * k**0.5)) < 0.05
        assert bool(values.any(dim=2).all())


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "bf16"])
def test_scales_differ(name: str) -> None:
    layer = layer_of(replace(PROBLEM, recipe_name=name))
    scales = torch.cat([weight.scales.flatten() for weight in layer.w1 if weight.scales is not None])
    assert len(scales.unique()) >= 3


@pytest.mark.parametrize("limit", [7.0, 10.0, 0.5])
@pytest.mark.parametrize("name", ["a4w4", "a8w4", "fp8_block", "bf16"])
def test_the_limit_is_reached_on_both_sides(limit: float, name: str) -> None:
    problem = replace(PROBLEM, recipe_name=name, activation=Activation("silu", limit), bias=False)
    layer = layer_of(problem)
    for call in draw_calls(layer, 8, 3)[:2]:
        beyond = share_beyond(layer, call, limit)
        assert all(0.01 < share < 0.4 for share in beyond), beyond


def share_beyond(layer: Layer, call: Call, limit: float) -> tuple[float, float, float]:
    """Shares of gates above the limit, of ups above it, and of ups below minus it."""
    weights = expanded(layer.w1)[layer.set_of[call.topk_ids.long()]]
    pre = torch.einsum("tkrc,tc->tkr", weights, call.activations.double())
    gate, up = pre.chunk(2, dim=2)
    return share(gate > limit), share(up > limit), share(up < -limit)


def share(where: Tensor) -> float:
    return float(where.double().mean())


def test_a_bias_weighs_as_much_as_a_pre_activation() -> None:
    layer = layer_of(PROBLEM, max_elements=1)
    for bias, rows in ((layer.bias1, 512), (layer.bias2, 512)):
        assert bias is not None
        assert bias.shape == (9, rows)
        assert bias.dtype is torch.float32
        assert 0.3 < float(bias.square().mean().sqrt() / layer.amplitude) < 0.8
        assert len(bias[:, 0].unique()) == 9
    without = layer_of(replace(PROBLEM, bias=False), max_elements=1)
    assert (without.bias1, without.bias2) == (None, None)


@pytest.mark.parametrize("name", RECIPES)
def test_a_partial_scale_block_is_refused(name: str) -> None:
    block = RECIPES[name].block
    problem = replace(PROBLEM, recipe_name=name, model_dim=512 + 64, inter_dim=256 + 16)
    if block:
        with pytest.raises(ValueError, match=f"no multiple of the scale block, {block}"):
            layer_of(problem, max_elements=1)
    else:
        assert layer_of(problem, max_elements=1).w1[0].dequantise().shape == (544, 576)


# --- the pool of weight sets


@pytest.mark.parametrize(
    ("expert", "sets_that_fit", "expected"),
    [
        *((385, 385, 385), (385, 384, 31), (385, 30, 13), (385, 12, 7), (385, 5, 5), (385, 1, 3)),
        *((8, 7, 7), (7, 6, 5), (2, 1, 2), (1, 1, 1)),
    ],
)
def test_pool_size(expert: int, sets_that_fit: int, expected: int) -> None:
    elements = 3 * PROBLEM.model_dim * PROBLEM.inter_dim
    assert pool_size(replace(PROBLEM, expert=expert), sets_that_fit * elements) == expected


WRONG_INDEX: dict[str, Callable[[Tensor, int], Tensor]] = {
    "cut to 8 bits": lambda expert, _: expert & 255,
    "one too high": lambda expert, experts: (expert + 1).clamp(max=experts - 1),
    "one too low": lambda expert, _: (expert - 1).clamp(min=0),
}


@pytest.mark.parametrize("sets", POOL_PRIMES)
def test_a_wrong_expert_index_reads_other_weights(sets: int) -> None:
    problem = replace(PROBLEM, model_dim=32, inter_dim=32, expert=385, topk=9)
    layer = layer_of(problem, max_elements=sets * 3 * 32 * 32)
    assert len(layer.w1) == len(layer.w2) == sets
    expert = torch.arange(385)
    for name, wrong in WRONG_INDEX.items():
        read = wrong(expert, 385)
        changed = read != expert
        assert int(changed.sum()) > 100, name
        assert bool((layer.set_of[expert] != layer.set_of[read])[changed].all()), name


def test_where_all_fit_each_expert_has_its_own_set() -> None:
    layer = layer_of(PROBLEM)
    assert layer.set_of.tolist() == list(range(9))
    assert len(layer.w1) == len(layer.w2) == 9


def test_weight_sets_are_distinct() -> None:
    layer = layer_of(PROBLEM, max_elements=7 * 3 * 512 * 256)
    assert len(layer.w1) == 7
    for weights in (layer.w1, layer.w2):
        assert not any(torch.equal(one.codes, other.codes) for one, other in combinations(weights, 2))


@settings(max_examples=30)
@given(problem=problems(), tokens=st.integers(1, 9))
def test_rows_of_a_set_are_those_of_its_experts(problem: Problem, tokens: int) -> None:
    layer = layer_of(problem, max_elements=1)
    ids = draw_calls(layer, tokens, 1)[0].topk_ids
    rows = expert_rows(layer, ids)
    found = {int(row): index for index, of_set in rows.items() for row in of_set}
    assert found == {row: int(layer.set_of[expert]) for row, expert in enumerate(ids.flatten().tolist())}
