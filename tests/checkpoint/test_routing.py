"""A router's facts come from its config, from the text model nested in it, or from what a model's code fixes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import checkpoints
from moeshapes.checkpoint.index import Index
from moeshapes.checkpoint.routing import Routing, routing_of


def routing(config: dict[str, Any], experts: int = 8) -> Routing | list[str]:
    found, findings = routing_of(Index(Path("there"), {}, config), experts)
    assert (found is None) == bool(findings)
    return [finding.message for finding in findings] if found is None else found


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (checkpoints.DEEPSEEK, Routing("sigmoid", True, 2.5, 4, 2)),
        (checkpoints.deepseek_v4().config, Routing("sqrtsoftplus", True, 1.5)),
        (checkpoints.glm().config, Routing("sigmoid", True, 2.5)),
        (checkpoints.QWEN3, Routing("softmax", True)),
        ({"model_type": "qwen3_next", "norm_topk_prob": True}, Routing("softmax", True, zero_centred_norm=True)),
        (checkpoints.qwen3_5().config, Routing("softmax", True, zero_centred_norm=True)),
        (checkpoints.gpt_oss().config, Routing("softmax", True)),
        (checkpoints.kimi_k2().config, Routing("sigmoid", True, 2.827)),
        (checkpoints.kimi_k3().config, Routing("sigmoid", True)),
    ],
)
def test_each_family_states_its_routing(config: dict[str, Any], expected: Routing) -> None:
    assert routing(config) == expected


def test_what_is_stated_comes_before_what_is_fixed() -> None:
    stated = {"model_type": "gpt_oss", "norm_topk_prob": False, "scoring_func": "sigmoid"}
    assert routing(stated) == Routing("sigmoid", False)


def test_null_counts_as_not_stated() -> None:
    assert routing({**checkpoints.DEEPSEEK, "n_group": None, "topk_group": None}) == Routing("sigmoid", True, 2.5)


def test_a_fact_that_nothing_tells_is_not_guessed() -> None:
    assert routing({"model_type": "new_moe"}) == [
        "none of `scoring_func`, `moe_router_activation_func` is stated",
        "none of `norm_topk_prob`, `moe_renormalize` is stated",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"scoring_func": "tanh"},
        {"scoring_func": 7},
        {"norm_topk_prob": 1},
        {"routed_scaling_factor": "2.5"},
        {"routed_scaling_factor": True},
        {"n_group": 3, "topk_group": 1},
        {"n_group": 0},
        {"n_group": -4},
        {"topk_group": 5},
        {"topk_group": 0},
        {"n_group": 4.0},
        {"topk_group": [1]},
        {"n_group": 10**4000},
        {"routed_scaling_factor": 0},
        {"routed_scaling_factor": -2.5},
        {"routed_scaling_factor": float("nan")},
        {"routed_scaling_factor": float("inf")},
        {"routed_scaling_factor": 1e39},
        {"routed_scaling_factor": 10**4000},
    ],
)
def test_a_fact_of_no_known_form_is_found(change: dict[str, Any]) -> None:
    found = routing({**checkpoints.DEEPSEEK, **change})
    assert isinstance(found, list)
    assert len(found) == 1


def test_findings_stand_at_the_config() -> None:
    _, (finding, *_) = routing_of(Index(Path("there"), {}, {}), 8)
    assert (finding.rule.name, finding.place.file) == ("router-fact", "there/config.json")
