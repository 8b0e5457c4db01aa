"""Which jobs of a plan take a checkpoint's weights, and under which name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import checkpoints
from checkpoints import EXPERTS, HIDDEN, INTER, TOPK
from jobs import job, problem
from moeshapes.checkpoint.index import open_index
from moeshapes.checkpoint.plan import shape_of, with_weights
from moeshapes.checkpoint.stored import StoredLayer, stored_layer
from moeshapes.problem import Problem
from moeshapes.use import Use
from moeshapes.verify.job import Job, Weights
from moeshapes.verify.plan import Planned, Subject
from small_repository import tuned_row


def stored(folder: Path) -> StoredLayer:
    return stored_layer(open_index(folder), "layers.0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoints.qwen3().write(tmp_path / "checkpoint")


def planned(what: Problem, name: str = "job") -> Planned:
    row = tuned_row()
    return Planned(Subject(row.key, Use("demo/tp1", "target", "bf16", "silu"), row), job(name, what))


FITTING = problem("bf16", model_dim=HIDDEN, inter_dim=INTER // 2, expert=EXPERTS, topk=TOPK)


def only(items: list[Planned]) -> Job:
    (item,) = items
    assert item.job is not None
    return item.job


def test_jobs_of_the_layers_shape_take_its_weights(folder: Path) -> None:
    other = planned(replace(FITTING, model_dim=HIDDEN + 256))
    without = replace(planned(FITTING), job=None, skipped="no such kernel")
    found = only(with_weights([planned(FITTING), other, without], stored(folder), 1))
    assert found.weights == Weights(str(folder), "model.layers.0", 1)
    assert replace(found, id="job", weights=None) == planned(FITTING).job


def test_no_committed_proof_of_drawn_weights_stands_for_a_checkpoints(folder: Path) -> None:
    (item,) = with_weights([replace(planned(FITTING), lacks_gpu=True)], stored(folder), 1)
    assert not item.lacks_gpu


def test_a_job_that_cannot_have_them_is_skipped_with_the_reason(folder: Path) -> None:
    (item,) = with_weights([planned(FITTING)], stored(folder), 2)
    assert item.job is None
    assert item.skipped == "real weights: rank 2 of 2 ranks"


def test_names_tell_weights_ranks_and_checkpoints_apart(folder: Path) -> None:
    ids = {only(with_weights([planned(FITTING, name)], stored(folder), rank)).id for name in "ab" for rank in (0, 1)}
    shard = next(folder.glob("*.safetensors"))
    os.utime(shard, (1, 1))
    ids.add(only(with_weights([planned(FITTING, "a")], stored(folder), 0)).id)
    assert len(ids) == 5
    assert not ids & {"a", "b"}
    again = only(with_weights([planned(FITTING, "a")], stored(folder), 0)).id
    assert again in ids


def test_jobs_with_other_weights_share_no_layer(folder: Path) -> None:
    first, second = (only(with_weights([planned(FITTING)], stored(folder), rank)) for rank in (0, 1))
    assert len({first.layer_key, second.layer_key, job("job", FITTING).layer_key}) == 3
    assert Job.from_json(first.to_json()) == first


def test_a_shape_is_told_in_words(folder: Path, tmp_path: Path) -> None:
    assert shape_of(stored(folder)) == "`model.layers.0` (DeepSeek-V3): 8 experts of 256 x 512"
    latent = checkpoints.kimi_k3().write(tmp_path / "latent")
    assert shape_of(stored_layer(open_index(latent), "layers.1")).endswith("8 experts of 128 x 512, 2 shared")
