"""Which (row, use) pairs become jobs, which do not and why, and what makes a job another one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declared import MODEL, declared, write_repository
from gpus import gpu, local
from moeshapes.dispatch import BUCKETS, TOP, tokens_of
from moeshapes.expand import Declarations
from moeshapes.record import _VERIFIER_SOURCES, digest, verifier_digest
from moeshapes.repository import load_declarations
from moeshapes.row import Key, TunedRow
from moeshapes.verify import plan as planning
from moeshapes.verify.job import Job
from moeshapes.verify.plan import UNDECLARED, Planned, counts_of, plan, undeclared_use
from moeshapes.verify.site import AUTO, EMULATED_UP_TO, WITHOUT_GPU, Site
from process import environment
from table_text import row

SHAPE = """\
model: demo
tp: 4
csv: demo_untuned_fmoe.csv
gpus: [{gfx: gfx950, cu_num: 256}, {gfx: gfx950, cu_num: 128}]
recipe: a8w4
gate_mode: interleave
env: {AITER_BF16_FP8_MOE_BOUND: 0}
pad: {inter_dim: 128}
pads: [zeros, arguments]
moe:
  - {block: target, shared_experts: fused, tokens: [1, 32, 512]}
"""


@pytest.fixture(scope="module")
def declarations(tmp_path_factory: pytest.TempPathFactory) -> Declarations:
    found, findings = declared(tmp_path_factory.mktemp("demo"), tp4=SHAPE)
    assert not findings
    return found


def demo_row(token: str = "32", **cells: str) -> TunedRow:
    dims = {"model_dim": "5120", "inter_dim": "640", "expert": "385", "topk": "7"}
    return row(token=token, **{**dims, **cells})


def jobs_of(planned: Sequence[Planned]) -> list[Job]:
    return [item.job for item in planned if item.job is not None]


def only_job(declarations: Declarations, tuned: TunedRow) -> Job:
    first, _ = jobs_of(plan(declarations, [tuned], with_defaults=False))
    return first


# --- declared uses


def test_a_row_is_verified_under_every_use_of_its_key(declarations: Declarations) -> None:
    planned = plan(declarations, [demo_row()], with_defaults=False)
    assert [item.subject.use.id for item in planned] == ["demo/tp4#target+arguments", "demo/tp4#target+zeros"]
    assert [job.problem.pads_as_arguments for job in jobs_of(planned)] == [True, False]
    assert len({job.id for job in jobs_of(planned)}) == 2


def test_a_job_says_all_that_a_worker_needs(declarations: Declarations) -> None:
    job = only_job(declarations, demo_row())
    problem = job.problem
    assert (problem.model_dim, problem.inter_dim, problem.expert, problem.topk) == (5120, 640, 385, 7)
    assert (problem.intermediate_pad, problem.hidden_pad, problem.shared_experts) == (64, 0, 1)
    assert (problem.activation.kind, problem.activation.limit) == ("silu", 10)
    assert (problem.interleave, problem.bias, problem.fnuz, problem.recipe_name) == (True, False, False, "a8w4")
    assert job.launch == demo_row().launch()
    assert (job.token, job.counts, job.backend) == (32, (32, 17, 24), "emulate")


def test_default_plans_cover_every_declared_shape_and_use_once(declarations: Declarations) -> None:
    planned = plan(declarations, [], with_defaults=True)
    seen = [(item.subject.use.id, item.subject.key.shape.token, item.subject.row) for item in planned]
    assert sorted(seen) == [
        (f"demo/tp4#target+{pads}", token, None) for pads in ("arguments", "zeros") for token in (1, 8)
    ]
    assert all(job.launch is None for job in jobs_of(planned))
    assert len({job.id for job in jobs_of(planned)}) == 4


def test_this_repository_has_a_default_plan_for_every_shape_and_recipe(root: Path) -> None:
    declarations, _ = load_declarations(root)
    jobs = jobs_of(plan(declarations, [], with_defaults=True))
    assert {job.use_id for job in jobs} == {declared.use.id for declared in declarations.rows}
    assert {job.problem.recipe_name for job in jobs} == {shape.recipe.name for shape in declarations.shapes}
    problems = {(digest(job.problem.as_json()), job.token) for job in jobs}
    assert len({job.id for job in jobs}) == len(problems)


# --- default plans of the portable kernels

TRITON = SHAPE.replace("demo_untuned", "triton_demo_untuned").replace(
    "[{gfx: gfx950, cu_num: 256}, {gfx: gfx950, cu_num: 128}]",
    "[{gfx: gfx950, cu_num: 256}, {gfx: sm_90, cu_num: 132}]",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Declarations:
    """One problem served by AITER and by the portable kernels."""
    found, findings = declared(tmp_path_factory.mktemp("both"), tp4=SHAPE, triton=TRITON)
    assert not findings
    return found


def planned_at(site: Site, declarations: Declarations) -> list[tuple[str, str, str, str]]:
    """Of the default plans at bucket 8 under zeros: deployment, backend, its GPU, and why not another."""
    items = [item for item in plan(declarations, [], with_defaults=True, site=site) if item.subject.use.pads == "zeros"]
    return [
        (i.subject.use.deployment, i.job.backend, i.job.gpu, i.note)
        for i in items
        if i.job and i.subject.key.shape.token == 8
    ]


def test_an_emulated_default_plan_is_shared_by_all_who_have_the_problem(both: Declarations) -> None:
    jobs = jobs_of(plan(both, [], with_defaults=True))
    assert (len(jobs), len({job.id for job in jobs})) == (8, 4)
    assert {(job.use_id, job.token) for job in jobs} == {
        (f"demo/{shape}#target+{pads}", token)
        for shape in ("tp4", "triton")
        for pads in ("zeros", "arguments")
        for token in (1, 8)
    }


def test_the_default_plan_runs_where_its_own_kernels_do(both: Declarations) -> None:
    assert planned_at(Site(AUTO, local(gpu())), both) == [
        ("demo/tp4", "emulate", "", ""),
        ("demo/triton", "portable", "sm_90/132", ""),
    ]
    without_aiter = local(gpu(gfx="gfx950", cu_num=256))
    assert planned_at(Site(AUTO, without_aiter), both) == [
        ("demo/tp4", "emulate", "", "AITER is not installed beside the gfx950/256 GPU"),
        ("demo/triton", "portable", "gfx950/256", ""),
    ]
    assert planned_at(WITHOUT_GPU, both) == [
        ("demo/tp4", "emulate", "", ""),
        ("demo/triton", "emulate", "", "no gfx950/256 GPU is here"),
    ]


def test_what_runs_on_a_gpu_is_shared_with_nobody(both: Declarations) -> None:
    jobs = jobs_of(plan(both, [], with_defaults=True, site=Site(AUTO, local(gpu()))))
    assert len({job.id for job in jobs}) == len(jobs) == 8


def test_a_row_is_verified_under_the_uses_of_its_own_kernels(both: Declarations) -> None:
    on_amd = {"kernelName1": "triton_moe1_afp8_wfp4_bf16_t32x128x256_w8_s3"}
    on_amd["kernelName2"] = "triton_moe2_afp8_wfp4_bf16_t32x128x256_w8_s3_reduce"
    uses = {
        deployment: [item.subject.use.id for item in plan(both, [row], with_defaults=False)]
        for deployment, row in (("tp4", demo_row()), ("triton", demo_row(**on_amd)))
    }
    assert uses["tp4"] == ["demo/tp4#target+arguments", "demo/tp4#target+zeros"]
    assert uses["triton"] == ["demo/triton#target+arguments", "demo/triton#target+zeros"]


# --- undeclared uses


def test_a_row_that_no_shape_declares_is_verified_under_the_plainest_use(declarations: Declarations) -> None:
    (item,) = plan(declarations, [demo_row(expert="64")], with_defaults=False)
    use = item.subject.use
    assert (use.deployment, use.id) == (UNDECLARED, "undeclared#row")
    assert (use.hidden_pad, use.intermediate_pad, use.bias, use.shared_experts, use.swiglu_limit) == (
        0,
        0,
        False,
        0,
        None,
    )
    assert item.job


@pytest.mark.parametrize(
    ("cells", "gate_mode", "limit", "alpha"),
    [
        ({}, "interleave", None, None),
        ({"q_dtype_a": "torch.float4_e2m1fn_x2"}, "separated", None, None),
        ({"q_dtype_w": "torch.float8_e4m3fn"}, "interleave", None, None),
        ({"act_type": "ActivationType.Swiglu"}, "interleave", 7.0, 1.702),
        ({"act_type": "ActivationType.Gelu"}, "interleave", None, None),
    ],
)
def test_the_plainest_use_follows_from_the_key(
    cells: dict[str, str], gate_mode: str, limit: float | None, alpha: float | None
) -> None:
    use, reason = undeclared_use(demo_row(**cells).key)
    assert reason == ""
    assert (use.gate_mode, use.swiglu_limit, use.swiglu_alpha) == (gate_mode, limit, alpha)
    assert use.activation == cells.get("act_type", "ActivationType.Silu").rpartition(".")[2].lower()


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"act_type": "ActivationType.Situv2"}, "Situv2 needs the model's situ_beta and situ_linear_beta"),
        ({"use_g1u1": "0"}, "rows without a gate"),
        ({"q_dtype_a": "torch.int8"}, "no recipe has torch.int8, torch.float4_e2m1fn_x2, QuantType.per_1x32"),
    ],
)
def test_what_cannot_be_verified_is_skipped_with_the_reason(
    declarations: Declarations, cells: dict[str, str], reason: str
) -> None:
    (item,) = plan(declarations, [demo_row(expert="64", **cells)], with_defaults=False)
    assert item.job is None
    assert item.skipped.startswith(reason)


def test_situv2_is_verified_where_a_model_declares_its_parameters(root: Path) -> None:
    declarations, _ = load_declarations(root)
    jobs = jobs_of(plan(declarations, [], with_defaults=True))
    (first, *_) = (job for job in jobs if job.problem.activation.kind == "situv2")
    assert (first.problem.activation.beta, first.problem.activation.linear_beta) == (4, 25)


# --- token counts


def test_large_buckets_are_skipped_with_the_reason(declarations: Declarations) -> None:
    for token in ("512", str(2 * EMULATED_UP_TO)):
        first, _ = plan(declarations, [demo_row(token)], with_defaults=False)
        assert first.job is None
        assert first.skipped == "emulated up to 256 tokens; this bucket needs a GPU"
    (largest,) = plan(declarations, [demo_row(str(EMULATED_UP_TO))], with_defaults=False)
    assert largest.job


@pytest.mark.parametrize(
    ("bucket", "counts"),
    [(1, (1,)), (2, (2,)), (4, (4, 3)), (8, (8, 5, 6)), (256, (256, 129, 192)), (3, (3,)), (48, (48,))],
)
def test_a_bucket_is_run_at_its_largest_smallest_and_middle_count(bucket: int, counts: tuple[int, ...]) -> None:
    assert counts_of(bucket) == counts


@given(st.sampled_from(BUCKETS))
def test_counts_are_the_buckets_own_and_the_largest_comes_first(bucket: int) -> None:
    counts = counts_of(bucket)
    assert len(set(counts)) == len(counts) <= 3
    assert counts[0] == max(counts) == bucket
    assert all(count in tokens_of(bucket) for count in counts)
    assert min(counts) == (tokens_of(bucket)[0] if bucket != TOP else TOP)


# --- identity


@pytest.mark.parametrize(
    "cells",
    [
        {"block_m": "64"},
        {"kernelName1": "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui"},
        {"kernelName2": "flydsl_moe2_afp8_wfp4_bf16_t32x128x256_reduce"},
        {"ksplit": "2"},
        {"xbf16": "1"},
        {"flat": "1"},
        {"cu_num": "128"},
        {"token": "1"},
    ],
    ids=str,
)
def test_another_launch_or_key_is_another_job(declarations: Declarations, cells: dict[str, str]) -> None:
    other = demo_row(**cells)
    assert only_job(declarations, other).id != only_job(declarations, demo_row()).id


def test_times_errors_and_place_are_no_part_of_a_job(declarations: Declarations) -> None:
    retimed = demo_row(us1="1.5", us2="2.5", us="4", err1="0.0%", err2="0.1%", tflops="1", bw="2")
    moved = replace(retimed, place=replace(retimed.place, file="elsewhere_tuned_fmoe.csv", line=77))
    assert only_job(declarations, moved).id == only_job(declarations, demo_row()).id


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("swiglu_limit: 10", "swiglu_limit: 9"),
        ("n_shared_experts: 1, activation: silu", "n_shared_experts: 1, activation: gelu"),
    ],
)
def test_another_model_is_another_job(tmp_path: Path, old: str, new: str) -> None:
    ids = []
    for name, text in (("a", MODEL), ("b", MODEL.replace(old, new))):
        assert name == "a" or text != MODEL
        declarations, _ = load_declarations(write_repository(tmp_path / name, {"demo/tp4": SHAPE}, {"demo": text}))
        ids.append([job.id for job in jobs_of(plan(declarations, [], with_defaults=True))])
    assert not set(ids[0]) & set(ids[1])


def test_the_environment_is_part_of_a_rows_job(tmp_path: Path) -> None:
    ids, defaults = [], []
    for name, text in (("a", SHAPE), ("b", SHAPE.replace("BOUND: 0}", "BOUND: 0, AITER_USE_NT: 1}"))):
        declarations, findings = declared(tmp_path / name, tp4=text)
        assert not findings
        ids.append(only_job(declarations, demo_row()).id)
        defaults.append([job.id for job in jobs_of(plan(declarations, [], with_defaults=True))])
    assert ids[0] != ids[1]
    assert defaults[0] == defaults[1]


@pytest.mark.parametrize("what", ["torch", "moeshapes", "verifier"])
def test_other_versions_are_another_job(declarations: Declarations, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = only_job(declarations, demo_row()).id
    versions = planning.versions_in_use()
    assert set(versions) == {"torch", "moeshapes", "verifier"}
    monkeypatch.setattr(planning, "versions_in_use", lambda: {**versions, what: "another"})
    assert only_job(declarations, demo_row()).id != before


def test_other_token_counts_are_another_job(declarations: Declarations, monkeypatch: pytest.MonkeyPatch) -> None:
    before = only_job(declarations, demo_row()).id
    monkeypatch.setattr(planning, "tokens_of", lambda bucket: range(bucket // 2, bucket + 1))
    assert only_job(declarations, demo_row()).id != before


def test_the_same_plan_twice_is_the_same(declarations: Declarations) -> None:
    rows = [demo_row(), demo_row("1"), demo_row(expert="64")]
    assert plan(declarations, rows, with_defaults=True) == plan(declarations, rows, with_defaults=True)


# --- the verifier's own code


CARRIERS = {"__init__", "findings", "rule", "row", "use", "verify/__init__", "backends/__init__"}
"""What a worker imports that computes nothing: their data is part of a job's identity."""


def test_all_code_that_a_worker_runs_is_part_of_the_verifiers_digest() -> None:
    code = (
        "import moeshapes.verify.worker as w, sys, moeshapes; w.load_backend('emulate'); "
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('moeshapes')), sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    package = Path(planning.__file__).parent.parent
    modules = {Path(line).relative_to(package).with_suffix("").as_posix() for line in done.stdout.splitlines()}
    digested = {name.removesuffix(".py") for name in _VERIFIER_SOURCES}
    assert {name for name in modules - CARRIERS if name not in digested and name.split("/")[0] not in digested} == set()


def test_the_digest_names_sources_that_are_there() -> None:
    package = Path(planning.__file__).parent.parent
    assert all((package / name).exists() for name in _VERIFIER_SOURCES)
    assert verifier_digest() == verifier_digest()
    assert len(verifier_digest()) == 20


def test_a_subject_is_named_by_shape_recipe_bucket_and_place(declarations: Declarations) -> None:
    first, *_, default = plan(declarations, [demo_row()], with_defaults=True)
    assert first.subject.name == "5120/640/385/7 a8w4 token 32 (a_tuned_fmoe.csv:2)"
    assert default.subject.name.endswith(" (default plan)")
    assert isinstance(default.subject.key, Key)
