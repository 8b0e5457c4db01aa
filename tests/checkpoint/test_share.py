"""Which problems are a layer's, and what each rank holds of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import checkpoints
from checkpoints import EXPERTS, HIDDEN, INTER, TOPK
from moeshapes.checkpoint.index import open_index
from moeshapes.checkpoint.share import Share, is_of, ranks_of, share_of, why_not
from moeshapes.checkpoint.stored import StoredLayer, stored_layer
from moeshapes.problem import Activation, Problem


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> StoredLayer:
    sample = checkpoints.deepseek_v3()
    return stored_layer(open_index(sample.write(tmp_path_factory.mktemp("deepseek"))), sample.layer)


def problem(**changes: Any) -> Problem:
    """On four ranks, the shared expert fused."""
    whole = Problem(
        model_dim=HIDDEN, inter_dim=INTER // 4, expert=EXPERTS + 1, topk=TOPK + 1, recipe_name="bf16", fnuz=False,
        activation=Activation("silu"), shared_experts=1,
    )  # fmt: skip
    return replace(whole, **changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"inter_dim": INTER}, True),
        ({"inter_dim": 192, "intermediate_pad": 64}, True),
        ({"inter_dim": 171}, True),  # 512 on three ranks: the widest has 171
        ({"inter_dim": 172}, False),
        ({"inter_dim": INTER + 128}, False),
        ({"model_dim": HIDDEN + 128}, False),
        ({"model_dim": HIDDEN + 128, "hidden_pad": 128}, True),
        ({"expert": EXPERTS}, False),
        ({"expert": EXPERTS, "shared_experts": 0}, True),
        ({"expert": EXPERTS // 2 + 1, "ep": 2}, True),
        ({"expert": EXPERTS // 2 + 1}, False),
    ],
)
def test_a_problem_is_the_layers_by_its_widths_and_counts(
    changes: dict[str, Any], expected: bool, layer: StoredLayer
) -> None:
    assert is_of(layer, problem(**changes)) == expected


@pytest.mark.parametrize(
    ("changes", "rank", "reason"),
    [
        ({}, 3, ""),
        ({}, 4, "rank 4 of 4 ranks"),
        (
            {"expert": EXPERTS + 2, "shared_experts": 2},
            0,
            "2 fused shared experts declared; the checkpoint has 1 of 512",
        ),
        ({"bias": True}, 0, "bias declared, but the checkpoint has none"),
        ({"topk": EXPERTS + 2}, 0, "9 routed slots declared for 8 experts"),
        ({"topk": EXPERTS // 2 + 1}, 0, ""),
        ({"topk": EXPERTS // 2 + 2}, 0, "5 routed slots declared; the router keeps 4 experts of 2 groups"),
    ],
)
def test_why_a_problem_of_the_layer_has_not_its_weights(
    changes: dict[str, Any], rank: int, reason: str, layer: StoredLayer
) -> None:
    assert why_not(layer, problem(**changes), rank) == reason


def test_a_bias_that_no_use_declares_is_told(tmp_path: Path) -> None:
    sample = checkpoints.gpt_oss()
    layer = stored_layer(open_index(sample.write(tmp_path)), sample.layer)
    without = problem(expert=EXPERTS, topk=TOPK, shared_experts=0)
    assert why_not(layer, without, 0) == "bias in the checkpoint, not declared"
    assert why_not(layer, replace(without, bias=True), 0) == ""


def test_ranks_share_the_columns(layer: StoredLayer) -> None:
    shares = [share_of(layer, problem(), rank) for rank in range(ranks_of(layer, problem()))]
    assert [share.columns for share in shares] == [range(n, n + 128) for n in (0, 128, 256, 384)]
    assert {share.experts for share in shares} == {range(EXPERTS)}
    assert [share.adds_bias for share in shares] == [True, False, False, False]


def test_ranks_share_the_experts(layer: StoredLayer) -> None:
    what = problem(expert=EXPERTS // 4 + 1, ep=4, inter_dim=INTER)
    shares = [share_of(layer, what, rank) for rank in range(4)]
    assert shares == [Share(range(n, n + 2), range(INTER), adds_bias=True) for n in (0, 2, 4, 6)]


def test_ranks_may_share_both(layer: StoredLayer) -> None:
    what = problem(expert=EXPERTS // 2 + 1, ep=2, inter_dim=INTER // 2)
    shares = [share_of(layer, what, rank) for rank in range(ranks_of(layer, what))]
    assert [(share.experts.start, share.columns.start) for share in shares] == [(0, 0), (0, 256), (4, 0), (4, 256)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_together_ranks_hold_every_column_once(ranks: int, layer: StoredLayer) -> None:
    what = problem(inter_dim=-(-INTER // ranks))
    columns = [column for rank in range(ranks) for column in share_of(layer, what, rank).columns]
    assert columns == list(range(INTER))
