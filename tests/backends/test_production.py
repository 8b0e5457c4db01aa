"""Every recipe and use that this repository declares, through the production backend, against AITER's stand-in."""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import standin
from jobs import launch
from moeshapes.backends.base import NotRunAsNamedError, ShadowedRowError
from moeshapes.backends.production.backend import ProductionArm, ProductionBackend, ProductionLayer
from moeshapes.backends.production.config import VARIABLE
from moeshapes.backends.production.parallel import routing_of
from moeshapes.verify import capture
from moeshapes.verify.capture import GpuLab
from moeshapes.verify.check import LayerCache, check
from moeshapes.verify.job import Job
from moeshapes.verify.lookup import cells_of, row_line
from process import environment
from production import (
    TOKEN,
    Scaled,
    aiter_for,
    calls_of,
    declared_uses,
    job_of,
    layer_of,
    lookup_of,
    row_of,
)

USES = declared_uses()


def use_of(*words: str) -> Scaled:
    """The first declared use with all these words in its name."""
    return next(use for use in USES if set(words) <= set(use.id.split("-")))


@pytest.mark.parametrize("use", USES, ids=lambda use: str(use.id))
def test_every_declared_use_passes_with_a_row_and_without(use: Scaled) -> None:
    row = row_of(use.problem)
    with aiter_for(use) as backend:
        result = check(job_of(use, row), backend, LayerCache())
        assert (result["verdict"], result["reasons"]) == ("pass", [])
        if row is not None:
            names = [name for name in (row["kernelName1"], row["kernelName2"]) if name]
            assert result["launched"][: len(names)] == names
            assert result["numerics"]["baseline"]["over_limit"] <= 1
            assert result["numerics"]["baseline"]["launched"][: len(names)] != names


def test_all_that_uses_can_have_is_among_them() -> None:
    problems = [use.problem for use in USES]
    assert {problem.recipe_name for problem in problems} >= {"a4w4", "a8w4", "a16w4", "a16wi4", "mxfp8", "bf16", "int8"}
    assert {problem.activation.kind for problem in problems} == {"silu", "gelu", "swiglu", "situv2"}
    for feature in ("interleave", "bias", "shared_experts", "doweight_stage1", "pads_as_arguments", "fnuz"):
        assert {bool(getattr(problem, feature)) for problem in problems} == {True, False}, feature
    assert {problem.ep > 1 for problem in problems} == {True, False}
    padded = [problem for problem in problems if problem.intermediate_pad]
    assert {problem.pads_as_arguments for problem in padded} == {True, False}


# --- arms


A8W4 = use_of("a8w4", "silu", "limit10", "shared", "pads0+64")


@pytest.fixture
def backend() -> Iterator[ProductionBackend]:
    with aiter_for(A8W4) as found:
        yield found


@pytest.fixture
def prepared(backend: ProductionBackend) -> ProductionLayer:
    return backend.prepare(layer_of(A8W4.problem))


def row(problem_use: Scaled = A8W4, **changes: object) -> dict[str, object]:
    found = row_of(problem_use.problem)
    assert found is not None
    return {**found, **changes}


OTHER = launch("flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui_fp8", "flydsl_moe2_afp8_wfp4_bf16_t32x128x128_atomic", 32)


def of_other_activation(use: Scaled, fields: dict[str, object]) -> str:
    key = replace(use.key, shape=replace(use.key.shape, act_type="ActivationType.Swiglu"))
    return row_line(cells_of(key), fields)


def names(fields: dict[str, object]) -> list[object]:
    return [fields["kernelName1"], fields["kernelName2"]]


def ran(arm: ProductionArm) -> list[str]:
    with arm.activate():
        arm.run(calls_of(A8W4.problem)[0])
    return arm.launched()[:2]


def test_a_rows_arm_has_a_table_of_that_row_alone(prepared: ProductionLayer) -> None:
    lookup = replace(lookup_of(A8W4), behind=(of_other_activation(A8W4, OTHER),))
    assert ran(prepared.arm(row(), TOKEN, lookup)) == names(row())


def test_without_the_row_the_merged_tables_may_have_one_of_another_activation(prepared: ProductionLayer) -> None:
    lookup = replace(lookup_of(A8W4), behind=(of_other_activation(A8W4, OTHER),))
    assert ran(prepared.arm(None, TOKEN, lookup)) == names(OTHER)


def test_without_any_aiters_own_choice_runs(prepared: ProductionLayer) -> None:
    heuristic = ["flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui", "flydsl_moe2_afp8_wfp4_bf16_t32x128x256_atomic_bnt2"]
    assert ran(prepared.arm(None, TOKEN, lookup_of(A8W4))) == heuristic
    assert ran(prepared.arm(None, TOKEN)) == heuristic


def test_arms_of_one_process_do_not_see_each_others_tables(prepared: ProductionLayer) -> None:
    """AITER keeps what it has read for as long as the process lives."""
    lookup = lookup_of(A8W4)
    one, other, none = (prepared.arm(fields, TOKEN, lookup) for fields in (row(), OTHER, None))
    for _ in range(2):
        assert (ran(one), ran(other)) == (names(row()), names(OTHER))
        assert ran(none) not in (names(row()), names(OTHER))


def test_a_row_behind_one_of_another_activation_is_shadowed(prepared: ProductionLayer) -> None:
    lookup = replace(lookup_of(A8W4), before=(of_other_activation(A8W4, OTHER),))
    arm = prepared.arm(row(), TOKEN, lookup)
    with pytest.raises(ShadowedRowError, match=str(OTHER["kernelName1"])):
        ran(arm)


def test_not_where_that_one_names_the_same_kernels(prepared: ProductionLayer) -> None:
    lookup = replace(lookup_of(A8W4), before=(of_other_activation(A8W4, row()),))
    assert ran(prepared.arm(row(), TOKEN, lookup)) == names(row())


def test_the_same_kernels_sorted_for_other_tiles_are_another_choice(prepared: ProductionLayer) -> None:
    lookup = replace(lookup_of(A8W4), before=(of_other_activation(A8W4, row(block_m=64)),))
    with pytest.raises(ShadowedRowError, match=r"with block_m 64, not to .* with block_m 32"):
        ran(prepared.arm(row(), TOKEN, lookup))


@pytest.mark.parametrize("level", [logging.NOTSET, logging.INFO, logging.ERROR])
def test_what_aiter_says_is_heard_at_any_level(prepared: ProductionLayer, level: int) -> None:
    logger = logging.getLogger("aiter")
    logger.setLevel(level)
    arm = prepared.arm(row(), TOKEN, lookup_of(A8W4))
    assert ran(arm) == names(row())
    assert any("using 2stage" in line for line in arm.witness.lines)
    assert logger.level == level


def test_an_arm_runs_only_while_it_is_active(prepared: ProductionLayer) -> None:
    with pytest.raises(RuntimeError, match="while it is active"):
        prepared.arm(row(), TOKEN, lookup_of(A8W4)).run(calls_of(A8W4.problem)[0])


def test_an_arm_that_has_not_run_has_launched_nothing(prepared: ProductionLayer) -> None:
    with pytest.raises(NotRunAsNamedError, match="no lookup"):
        prepared.arm(row(), TOKEN, lookup_of(A8W4)).launched()


def test_arms_of_all_copies_of_the_weights_are_active_in_a_capture(
    backend: ProductionBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a graph that is none: what is captured without a GPU runs at once."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(capture, "capturing", nullcontext)
    monkeypatch.setattr(capture, "_TimedGraph", lambda graph: graph)
    monkeypatch.setattr(GpuLab, "_gaps", lambda lab: [])
    monkeypatch.setenv(VARIABLE, "before.csv")
    lookup, calls = lookup_of(A8W4), calls_of(A8W4.problem)
    one, other = (backend.prepare(layer_of(A8W4.problem)).arm(row(), TOKEN, lookup) for _ in range(2))
    GpuLab([[(one, calls[0]), (other, calls[1]), (one, calls[1]), (other, calls[0])]], seed=1).capture(0)
    assert os.environ[VARIABLE] == "before.csv"
    for arm in (one, other):
        assert arm.launched()[:2] == names(row())
        with pytest.raises(RuntimeError, match="while it is active"):
            arm.run(calls[0])
    assert ran(backend.prepare(layer_of(A8W4.problem)).arm(OTHER, TOKEN, lookup)) == names(OTHER)


LAYOUT = launch(
    "flydsl_moe1_afp8_wfp4_bf16_t32x64x256_w3_gui_fp8", "flydsl_moe2_layout_afp8_wfp4_bf16_t32x128x128_atomic", 32
)


def test_afterwards_aiter_holds_no_tensor_of_a_layer(backend: ProductionBackend) -> None:
    """A worker prepares one layer after another, each of gigabytes."""
    prepared = backend.prepare(layer_of(A8W4.problem))
    scale = weakref.ref(prepared.weights.w2_scale)
    assert ran(prepared.arm(LAYOUT, TOKEN, lookup_of(A8W4))) == names(LAYOUT)
    del prepared
    gc.collect()
    assert scale() is None


def test_into_a_buffer_go_the_first_rows_and_no_more(prepared: ProductionLayer) -> None:
    call = calls_of(A8W4.problem)[0]
    arm = prepared.arm(None, TOKEN)
    out = torch.full((TOKEN + 2, A8W4.problem.model_dim), 7.0, dtype=torch.bfloat16)
    with arm.activate():
        expected, given = arm.run(call), arm.run(call, out)
    assert given is out
    assert torch.equal(out[:TOKEN], expected)
    assert (out[TOKEN:] == 7).all()


def test_a_process_of_no_gpu_proves_nothing(backend: ProductionBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever calls itself AITER, and even if torch were built for ROCm."""
    assert backend.emulated
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert ProductionBackend().emulated


def test_stages_cannot_run_alone(prepared: ProductionLayer) -> None:
    assert prepared.arm(None, TOKEN).stages() is None


# --- expert parallelism


@pytest.mark.parametrize("shared", [False, True])
def test_a_rank_leaves_out_what_is_not_its_own(shared: bool) -> None:
    use = next(use for use in USES if use.problem.ep > 1 and bool(use.problem.shared_experts) is shared)
    probing = calls_of(use.problem)[1]
    routing = routing_of(use.problem, probing)
    assert routing.expert_mask is not None
    assert routing.expert_mask.sum() == use.problem.expert
    assert not routing.expert_mask[0], "the first rank's experts have the same ids here and everywhere"
    sentinel = routing.expert_mask.numel() - 1
    assert not routing.expert_mask[sentinel]
    assert (routing.topk_ids[:, -1] == sentinel).all()
    assert routing.topk_ids.shape == (TOKEN, use.problem.topk + 1)
    assert routing.topk_ids.is_contiguous()
    assert (routing.topk_weights > 0).all()
    local = routing.expert_mask.cumsum(0) - 1
    held = routing.expert_mask[routing.topk_ids.long()][:, :-1].bool()
    assert torch.equal(held, probing.topk_weights > 0), "probes leave slots to others, with a weight that would show"
    assert (~held).any()
    assert torch.equal(local[routing.topk_ids.long()][:, :-1][held], probing.topk_ids.long()[held])
    assert torch.equal(routing.topk_weights[:, :-1][held], probing.topk_weights[held])


def test_without_ranks_routing_is_the_calls() -> None:
    call = calls_of(A8W4.problem)[0]
    routing = routing_of(A8W4.problem, call)
    assert (routing.topk_ids, routing.topk_weights, routing.expert_mask) == (call.topk_ids, call.topk_weights, None)


def test_where_weights_come_before_a_bias_no_slot_is_given_away() -> None:
    use = next(use for use in USES if use.problem.ep > 1)
    problem = replace(use.problem, doweight_stage1=True)
    call = calls_of(use.problem)[1]
    routing = routing_of(problem, call)
    assert torch.equal(routing.topk_weights[:, :-1], call.topk_weights)


# --- a worker


def worker(jobs: list[Job], env: dict[str, str]) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "moeshapes.verify.worker", "--threads", "1"]
    given = "".join(job.to_json() + "\n" for job in jobs)
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, env=env)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return [answer for answer in said if "job" in answer]


def test_a_worker_imports_aiter_in_the_jobs_environment_and_never_in_two(tmp_path: Path) -> None:
    """Inherited variables that dispatch reads are not the job's."""
    inherited = {**environment(), **standin.environment(), "AITER_BYPASS_TUNE_CONFIG": "1", "AITER_LOG_LEVEL": "ERROR"}
    inherited["PYTHONPATH"] = f"{inherited['PYTHONPATH']}:{environment()['PYTHONPATH']}"
    job = job_of(A8W4, row())
    other = replace(job, id="other", env={"AITER_BF16_FP8_MOE_BOUND": "256"})
    first, second = worker([job, other], inherited)
    result = first["result"]
    assert isinstance(result, dict)
    assert (result["verdict"], result["emulated"], result["device"]) == ("pass", True, {"kind": "cpu"})
    assert result["launched"][:2] == names(row())
    assert str(second["error"]).startswith("OtherEnvironmentError: aiter was imported with another AITER_BF16_FP8")
