"""Real weights go through the verifier as drawn ones do, whichever backend computes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import checkpoints
import standin
from checkpoints import EXPERTS, HIDDEN, INTER, LATENT, TOPK, Sample
from jobs import job
from moeshapes.backends.base import Backend
from moeshapes.backends.emulate import EmulateBackend
from moeshapes.backends.production.backend import ProductionBackend
from moeshapes.problem import Activation, Problem
from moeshapes.verify.check import LayerCache, check
from moeshapes.verify.job import Weights

RANK = 1


def problem(recipe: str, shared: int, **changes: Any) -> Problem:
    half = Problem(
        model_dim=HIDDEN, inter_dim=INTER // 2, expert=EXPERTS + shared, topk=TOPK + shared, recipe_name=recipe,
        fnuz=False, activation=Activation("silu"), shared_experts=shared,
    )  # fmt: skip
    return replace(half, **changes)


SWIGLU = Activation("swiglu", 7.0, 1.702)
PROBLEMS: dict[str, tuple[Sample, Problem]] = {
    "DeepSeek-V3": (checkpoints.deepseek_v3(), problem("fp8_block", 1)),
    "DeepSeek-V4": (
        checkpoints.deepseek_v4(),
        problem("a8w4", 1, interleave=True, activation=Activation("silu", 10.0)),
    ),
    "DeepSeek-V4, hashed": (checkpoints.deepseek_v4(hashed=True), problem("a8w4", 1, interleave=True)),
    "GLM": (checkpoints.glm(), problem("fp8_token", 1)),
    "Qwen3": (checkpoints.qwen3(), problem("bf16", 0)),
    "Qwen3, experts shared": (checkpoints.qwen3(), problem("bf16", 0, expert=EXPERTS // 2, ep=2, inter_dim=INTER)),
    "Qwen3.5": (checkpoints.qwen3_5(), problem("fp8_block", 1)),
    "gpt-oss": (checkpoints.gpt_oss(), problem("a8w4", 0, bias=True, interleave=True, activation=SWIGLU)),
    "Kimi-K2": (checkpoints.kimi_k2(), problem("a16wi4", 1)),
    "Kimi-K3": (checkpoints.kimi_k3(), problem("a4w4", 0, model_dim=LATENT)),
}
ENVIRONMENTS = {"a8w4": {"AITER_BF16_FP8_MOE_BOUND": "0"}}


def result(name: str, folder: Path, backend: Backend) -> dict[str, Any]:
    sample, what = PROBLEMS[name]
    weights = Weights(str(sample.write(folder)), sample.layer, RANK)
    asked = job(name, what, weights=weights, max_elements=1 << 40, thorough=False, backend=backend.name)
    with torch.inference_mode():
        return check(asked, backend, LayerCache())


@pytest.mark.parametrize("name", PROBLEMS)
def test_emulated_layers_pass(name: str, tmp_path: Path) -> None:
    found = result(name, tmp_path, EmulateBackend())
    assert found["verdict"] == "pass", found["reasons"]
    assert found["numerics"]["weights"]["rank"] == RANK
    assert found["numerics"]["weight_sets"] == PROBLEMS[name][1].expert


@pytest.mark.parametrize("name", PROBLEMS)
def test_layers_pass_through_aiters_stand_in(name: str, tmp_path: Path) -> None:
    with standin.installed(env=ENVIRONMENTS.get(PROBLEMS[name][1].recipe_name, {})):
        found = result(name, tmp_path, ProductionBackend())
    assert found["verdict"] == "pass", found["reasons"]


def test_a_wrong_rank_is_the_jobs_error(tmp_path: Path) -> None:
    sample, what = PROBLEMS["Qwen3"]
    asked = job("a", what, weights=Weights(str(sample.write(tmp_path)), sample.layer, 5))
    with pytest.raises(ValueError, match="rank 5 of 2 ranks"):
        check(asked, EmulateBackend(), LayerCache())
    other = job("b", replace(what, model_dim=512), weights=Weights(str(tmp_path), sample.layer))
    with pytest.raises(ValueError, match="other widths or experts"):
        check(other, EmulateBackend(), LayerCache())


def test_a_table_that_names_experts_that_are_not_there_is_the_jobs_error(tmp_path: Path) -> None:
    sample = checkpoints.deepseek_v4(hashed=True)
    table = sample["ffn.gate.tid2eid"].clone()
    table[3, 1] = EXPERTS
    folder = sample.having(ffn__gate__tid2eid=table).write(tmp_path)
    asked = job("a", problem("a8w4", 1), weights=Weights(str(folder), sample.layer))
    with pytest.raises(ValueError, match="names others than its 8"):
        check(asked, EmulateBackend(), LayerCache())
