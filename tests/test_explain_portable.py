"""What a call of the portable kernels finds and runs, and that no rule of AITER's lookup has a say in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from answers import AnsweringPool, result
from declared import write_repository
from gpus import gpu, local
from moeshapes.coverage import Status, cover
from moeshapes.coverage_view import as_text
from moeshapes.deployment import Deployment, deployments
from moeshapes.dispatch import BUCKETS, bucket_of
from moeshapes.explain_portable import PortableExplanation, explain_portable
from moeshapes.portable import DEFAULT_IN_WORDS, default_launch
from moeshapes.questions import Circumstances, ask_about_key, ask_about_model
from moeshapes.recipe import RECIPES
from moeshapes.record import RecordStore
from moeshapes.report.evidence import Evidence
from moeshapes.repository import load_declarations
from moeshapes.runtime.merged import MergedTable, merge
from moeshapes.table import read_table
from moeshapes.verify.plan import plan
from moeshapes.verify.run import run
from moeshapes.verify.site import AUTO, Site
from small_repository import (
    MODEL,
    PORTABLE_KERNELS,
    PORTABLE_SHAPE,
    PORTABLE_TABLE,
    portable_cells,
    portable_line,
    portable_row,
    write_both_backends,
)
from table_text import line, table

GELU = {"act_type": "ActivationType.Gelu"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Deployment]:
    """One problem under AITER on gfx950, and under the portable kernels on gfx950 and on sm_90."""
    declarations, findings = load_declarations(write_both_backends(tmp_path_factory.mktemp("both")))
    assert not findings
    return list(deployments(declarations))


def on(served: Sequence[Deployment], gfx: str) -> Deployment:
    (found,) = (d for d in served if d.is_portable and d.gpu.gfx == gfx)
    return found


def rows(*lines: str) -> MergedTable:
    return merge([table(*lines, name=PORTABLE_TABLE)])


def asked(deployment: Deployment, tokens: int, found: MergedTable) -> PortableExplanation:
    return explain_portable(deployment.name, deployment.call(tokens), found, deployment)


def text_of(answer: PortableExplanation) -> str:
    return "\n".join(f"{step.name}: {line}" for step in answer.steps for line in step.lines)


# --- the lookup


def test_a_call_finds_the_row_of_its_bucket(served: Sequence[Deployment]) -> None:
    answer = asked(on(served, "sm_90"), 7, rows(portable_line(4), portable_line(8)))
    assert answer.row == replace(portable_row(8), place=replace(portable_row(8).place, file=PORTABLE_TABLE, line=3))
    assert answer.kernels == PORTABLE_KERNELS
    text = text_of(answer)
    for words in (
        "backend: portable Triton kernels: AITER does not run on sm_90; the key is looked up in generated/triton alone",
        "bucket: 7 → 8 (serves 5 to 8 tokens)",
        "key: sm_90/132 token 8 256/256/8/2 Silu",
        f"row: {PORTABLE_TABLE}:3: recorded 60.75 µs (40.5 + 20.25), block_m 16",
        f"row: {PORTABLE_KERNELS[0]}",
        "runs: as the row names them, block_m 16",
    ):
        assert words in text


@pytest.mark.parametrize(
    "cells", [GELU, {"gfx": "gfx950", "cu_num": "256"}, {"cu_num": "114"}, {"token": "16"}, {"doweight_stage1": "1"}]
)
def test_a_row_of_another_key_is_never_borrowed(served: Sequence[Deployment], cells: dict[str, str]) -> None:
    answer = asked(on(served, "sm_90"), 8, rows(line(**{**portable_cells(8), **cells})))
    assert answer.row is None
    assert "row: none" in text_of(answer)


def test_the_top_bucket_does_not_fall_back(served: Sequence[Deployment]) -> None:
    found = rows(portable_line(32768))
    assert asked(on(served, "sm_90"), 131072, found).row is None
    assert asked(on(served, "sm_90"), 40000, found).row


def test_two_activations_have_a_row_each(served: Sequence[Deployment]) -> None:
    found = rows(portable_line(8, **GELU, us1="5", us="25.25"), portable_line(8))
    answer = asked(on(served, "sm_90"), 8, found)
    assert answer.row
    assert answer.row.place.line == 3


def test_circumstances_of_aiter_change_nothing(served: Sequence[Deployment], tmp_path: Path) -> None:
    declarations, _ = load_declarations(write_both_backends(tmp_path))
    odd = Circumstances(False, 9, "interleave", True, True, True, {"AITER_BYPASS_TUNE_CONFIG": "1"})
    plain, changed = (
        ask_about_model("tiny/tp2-triton", None, [8], circumstances, declarations)
        for circumstances in (Circumstances(), odd)
    )
    assert [question.call for question in plain] == [question.call for question in changed]
    assert all(question.is_portable for question in plain)


@given(st.integers(1, 200_000))
def test_any_token_count_has_an_answer_with_its_own_buckets_key(served: Sequence[Deployment], tokens: int) -> None:
    answer = asked(on(served, "sm_90"), tokens, rows(portable_line(8)))
    assert answer.call.key.shape.token == bucket_of(tokens)
    assert bool(answer.row) == (bucket_of(tokens) == 8)
    assert json.loads(json.dumps(answer.as_json(), allow_nan=False))["runs"]["block_m"]


# --- without a row


@pytest.mark.parametrize("tokens", [1, 64, 65, 2048])
def test_without_a_row_the_backends_own_tiles_run(served: Sequence[Deployment], tokens: int) -> None:
    answer = asked(on(served, "sm_90"), tokens, rows())
    launch = default_launch(RECIPES["a4w4"], bucket_of(tokens))
    assert (answer.launch, answer.as_json()["runs"]) == (launch, launch)
    text = text_of(answer)
    assert f"the backend's default, {DEFAULT_IN_WORDS}; here block_m {launch['block_m']}" in text
    assert f"runs: {launch['kernelName1']}" in text


def test_the_nearest_row_is_named(served: Sequence[Deployment]) -> None:
    text = text_of(asked(on(served, "sm_90"), 8, rows(portable_line(16))))
    assert (
        "nearest, never borrowed: 256/256/8/2 float4_e2m1fn_x2 x float4_e2m1fn_x2 on sm_90/132 lacks the bucket" in text
    )


def test_a_key_that_no_kernels_compute_runs_nothing() -> None:
    (question,) = ask_about_key("sm_90,132,8,6144,512,257,9,Silu,bf16,i8,i8,per_Tensor,1,0", (), Circumstances())
    assert question.is_portable
    answer = explain_portable(question.subject, question.call, rows())
    assert answer.has_errors
    assert answer.as_json()["runs"] is None
    assert text_of(answer).endswith("runs: nothing: the portable backend has no kernels for int8")


# --- both backends


def test_an_amd_gpu_has_either_backend_as_its_shape_says(served: Sequence[Deployment]) -> None:
    answer = asked(on(served, "gfx950"), 8, rows(portable_line(8, gfx="gfx950", cu_num="256")))
    assert answer.row
    assert "the shape's csv is one of theirs, which AITER does not read" in text_of(answer)
    (aiters,) = (d for d in served if not d.is_portable)
    (question,) = ask_about_key(",".join(["gfx950,256", *aiters.declared.row.cells()]), (), Circumstances())
    assert not question.is_portable


# --- records


def test_the_record_of_a_row_is_named_with_what_it_says(tmp_path: Path) -> None:
    root = write_both_backends(tmp_path, portable_line(8))
    declarations, _ = load_declarations(root)
    deployment = on(list(deployments(declarations)), "sm_90")
    found = merge([read_table(root / PORTABLE_TABLE, PORTABLE_TABLE)])

    def record_line() -> str:
        answer = explain_portable("s", deployment.call(8), found, deployment, Evidence(root))
        return next(line for step in answer.steps for line in step.lines if step.name == "record")

    assert record_line() == "none: `moeshapes verify` makes one on a GPU of the kind"
    planned = plan(declarations, found.rows, with_defaults=False, site=Site(AUTO, local(gpu())))
    h200 = {"kind": "gpu", "gfx": "sm_90", "cu_num": 132, "board": "NVIDIA H200", "memory": 1 << 37, "driver": "570.1"}
    store = RecordStore(root / "build/records", root / "generated/records")
    run(planned, store, AnsweringPool(lambda job: result(job) | {"emulated": False, "device": h200}), fresh=False)
    (path,) = (root / "generated/records/triton_tiny_tuned_fmoe").iterdir()
    said = record_line()
    assert said.startswith(f"{path.relative_to(root)}: proven on NVIDIA H200, 20")
    path.write_text("{}")
    assert record_line().startswith(f"{path.relative_to(root)}: ")
    assert "proven" not in record_line()


# --- coverage


def test_coverage_counts_rows_reasons_and_gaps(tmp_path: Path) -> None:
    shape = PORTABLE_SHAPE.replace("tokens: [1, 8]", "tokens: [1, 8], left_out: [{tokens: 2..4, reason: no gain}]")
    declarations, _ = load_declarations(write_repository(tmp_path, {"tiny/tp2": shape}, {"tiny": MODEL}))
    on_amd, on_nvidia = cover(deployments(declarations), rows(portable_line(8), portable_line(32768)))
    statuses = {cell.bucket: cell.status for cell in on_nvidia.cells}
    assert list(statuses) == list(BUCKETS)
    assert [bucket for bucket, status in statuses.items() if status is Status.EXACT] == [8, 32768]
    assert [bucket for bucket, status in statuses.items() if status is Status.LEFT_OUT] == [2, 4]
    assert not {Status.TIER, Status.NOT_ASKED, Status.DISCARDED, Status.OTHER_ACTIVATION} & set(statuses.values())
    assert on_amd.gaps == [bucket for bucket in BUCKETS if bucket not in (2, 4)]
    text = as_text([on_amd, on_nvidia])
    assert "PP" in text
    assert "P portable Triton" in text
    assert "sm_90/132: gap at 1 (declared): the portable backend's default" in text
    assert "gap at 16..16384, 131072 (neither declared nor left out): the portable backend's default" in text
