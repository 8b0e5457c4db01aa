"""The router against the same written token by token."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from moeshapes.checkpoint.router import Router
from moeshapes.checkpoint.routing import SCORINGS, Routing
from moeshapes.checkpoint.share import Share
from moeshapes.problem import Activation, Problem
from moeshapes.workload import generator_of

HIDDEN = 64
CPU = torch.device("cpu")


def problem(experts: int, topk: int, shared: int = 0, hidden_pad: int = 0) -> Problem:
    return Problem(
        model_dim=HIDDEN + hidden_pad, inter_dim=64, expert=experts + shared, topk=topk + shared, recipe_name="bf16",
        fnuz=False, activation=Activation("silu"), shared_experts=shared, hidden_pad=hidden_pad,
    )  # fmt: skip


def router(
    what: Problem, routing: Routing, experts: int, own: range | None = None, seed: int = 0, **tensors: Tensor
) -> Router:
    generator = generator_of(seed, CPU)
    drawn = {
        "norm": 1 + 0.5 * torch.randn(HIDDEN, generator=generator),
        "router": 0.3 * torch.randn((experts, HIDDEN), generator=generator),
    }
    share = Share(own or range(experts), range(64), adds_bias=True)
    return Router(what, routing, share, {**drawn, **tensors}, experts)


def activations(tokens: int, seed: int = 1) -> Tensor:
    return torch.randn((tokens, HIDDEN), generator=generator_of(seed, CPU))


def naive(logits: Sequence[float], routing: Routing, topk: int, correction: Sequence[float] | None) -> dict[int, float]:
    """A token's experts and their weights, in plain Python."""
    if routing.scoring == "softmax":
        total = math.fsum(math.exp(value) for value in logits)
        scores = [math.exp(value) / total for value in logits]
    elif routing.scoring == "sigmoid":
        scores = [1 / (1 + math.exp(-value)) for value in logits]
    else:
        scores = [math.sqrt(math.log1p(math.exp(value))) for value in logits]
    ranked = scores if correction is None else [s + c for s, c in zip(scores, correction, strict=True)]
    size = len(scores) // routing.groups
    groups = [range(start, start + size) for start in range(0, len(scores), size)]
    best_of = 1 if correction is None else 2
    groups.sort(key=lambda group: -math.fsum(sorted((ranked[e] for e in group), reverse=True)[:best_of]))
    allowed = [expert for group in groups[: routing.groups_kept] for expert in group]
    chosen = sorted(allowed, key=lambda expert: -ranked[expert])[:topk]
    total = math.fsum(scores[expert] for expert in chosen) if routing.renormalise else 1.0
    return {expert: scores[expert] / total * routing.scaling for expert in chosen}


@settings(max_examples=60)
@given(
    scoring=st.sampled_from(SCORINGS),
    renormalise=st.booleans(),
    scaling=st.sampled_from([1.0, 2.5]),
    groups=st.sampled_from([(1, 1), (4, 2), (4, 3), (8, 2)]),
    corrected=st.booleans(),
    biased=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_tokens_go_where_the_router_sends_them(
    scoring: str, renormalise: bool, scaling: float, groups: tuple[int, int], corrected: bool, biased: bool, seed: int
) -> None:
    routing = Routing(scoring, renormalise, scaling, *groups)
    generator = generator_of(seed, CPU)
    extra: dict[str, Tensor] = {}
    if corrected:
        extra["correction"] = torch.randn(16, generator=generator) * 0.3
    if biased:
        extra["router_bias"] = torch.randn(16, generator=generator)
    found = router(problem(16, 4), routing, 16, range(16), seed, **extra)
    x = activations(5, seed)
    ids, weights = found.route(x, generator)
    logits = x.double() @ found.tensors["router"].double().T + (extra["router_bias"].double() if biased else 0.0)
    for token in range(5):
        correction = extra["correction"].tolist() if corrected else None
        expected = naive(logits[token].tolist(), routing, 4, correction)
        assert dict(zip(ids[token].tolist(), weights[token].tolist(), strict=True)) == pytest.approx(expected, rel=1e-4)


def test_shared_experts_come_last_with_weight_one() -> None:
    found = router(problem(8, 3, shared=2), Routing("sigmoid", True, 2.5), 8)
    ids, weights = found.route(activations(6), generator_of(0, CPU))
    assert ids.dtype is torch.int32
    assert (weights.dtype, ids.shape, weights.shape) == (torch.float32, (6, 5), (6, 5))
    assert ids[:, 3:].tolist() == [[8, 9]] * 6
    assert bool((weights[:, 3:] == 1).all())
    assert torch.allclose(weights[:, :3].sum(dim=1), torch.tensor(2.5))
    assert ids.is_contiguous()
    assert weights.is_contiguous()


def test_a_gate_of_its_own_weighs_the_shared_expert() -> None:
    gate = torch.linspace(-1, 1, HIDDEN).unsqueeze(0)
    x = activations(6)
    found = router(problem(8, 3, shared=1), Routing("softmax", True), 8, shared_gate=gate)
    _, weights = found.route(x, generator_of(0, CPU))
    assert torch.allclose(weights[:, 3], 1 / (1 + (-(x * gate).sum(dim=1)).exp()))


def test_a_table_sends_tokens_without_a_look_at_them() -> None:
    table = torch.tensor([[0, 1, 2], [5, 6, 7], [3, 1, 4]])
    found = router(problem(8, 3), Routing("sqrtsoftplus", True, 1.5), 8, table=table)
    x = activations(1).expand(200, -1)
    ids, weights = found.route(x, generator_of(0, CPU))
    assert {tuple(row) for row in ids.tolist()} == {tuple(row) for row in table.tolist()}
    scores = found.scores(x).gather(1, ids.long())
    assert torch.allclose(weights, 1.5 * scores / scores.sum(dim=1, keepdim=True))


@settings(max_examples=40)
@given(ranks=st.sampled_from([2, 4, 8]), rank=st.integers(0, 7), seed=st.integers(0, 1000))
def test_other_ranks_experts_weigh_nothing(ranks: int, rank: int, seed: int) -> None:
    experts, local, topk = 32, 32 // ranks, 4
    start = rank % ranks * local
    own = range(start, start + local)
    routing = Routing("softmax", True)
    everywhere = router(problem(experts, topk), routing, experts, seed=seed)
    here = router(problem(local, topk), routing, experts, own, seed=seed)
    x = activations(9, seed)
    ids, weights = everywhere.route(x, generator_of(0, CPU))
    own_ids, own_weights = here.route(x, generator_of(0, CPU))
    for token in range(9):
        expected = {e - start: w for e, w in zip(ids[token].tolist(), weights[token].tolist(), strict=True) if e in own}
        pairs = list(zip(own_ids[token].tolist(), own_weights[token].tolist(), strict=True))
        assert {e: w for e, w in pairs if w} == expected
        assert all(0 <= e < local for e, _ in pairs)
        assert len({e for e, _ in pairs}) == topk


# --- activations


def test_production_like_tokens_have_the_norms_gains_and_plain_ones_have_none() -> None:
    found = router(problem(8, 3, hidden_pad=64), Routing("softmax", True), 8)
    gains = found.norm.abs()
    x, _, _ = found.draw(4096, True, generator_of(0, CPU))
    assert x.shape == (4096, HIDDEN + 64)
    assert not x[:, HIDDEN:].any()
    rms = x[:, :HIDDEN].square().mean(dim=0).sqrt()
    assert torch.allclose(rms, gains, rtol=0.1)
    assert torch.equal(found.channel_gain[:HIDDEN].abs(), gains)
    assert x[:, :HIDDEN].square().mean().sqrt() == pytest.approx(found.amplitude, rel=0.05)
    plain, _, _ = found.draw(4096, False, generator_of(0, CPU))
    flat = plain[:, :HIDDEN].square().mean(dim=0).sqrt()
    assert torch.allclose(flat, torch.full((HIDDEN,), found.amplitude), rtol=0.1)


def test_a_norm_around_zero_multiplies_by_one_more() -> None:
    norm = torch.full((HIDDEN,), 0.25)
    found = router(problem(8, 3), Routing("softmax", True, zero_centred_norm=True), 8, norm=norm)
    assert found.amplitude == pytest.approx(1.25)


def test_experts_of_a_latent_width_read_what_the_router_does_not() -> None:
    latent = torch.randn((32, HIDDEN), generator=generator_of(3, CPU))
    what = Problem(
        model_dim=32, inter_dim=64, expert=8, topk=3, recipe_name="bf16", fnuz=False, activation=Activation("silu")
    )
    found = router(what, Routing("sigmoid", True), 8, latent=latent)
    x, ids, _ = found.draw(2048, True, generator_of(0, CPU))
    assert x.shape == (2048, 32)
    assert ids.shape == (2048, 3)
    assert torch.allclose(x.square().mean(dim=0).sqrt(), found.channel_gain, rtol=0.15)
    assert x.square().mean().sqrt() == pytest.approx(found.amplitude, rel=0.1)


def test_the_router_sees_the_activations_that_experts_see() -> None:
    found = router(problem(8, 3), Routing("softmax", True), 8)
    x, ids, weights = found.draw(16, True, generator_of(0, CPU))
    again, same_weights = found.route(x, generator_of(9, CPU))
    assert torch.equal(ids, again)
    assert torch.equal(weights, same_weights)


def test_a_seed_gives_the_same_again() -> None:
    found = router(problem(8, 3), Routing("softmax", True), 8)
    one, other = (found.draw(5, True, generator_of(4, CPU)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
