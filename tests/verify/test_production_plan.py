"""Rows of AITER's kernels go where AITER and their GPU are; what runs there is evidence with AITER's commit."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from answers import AnsweringPool, errors, result
from declared import SHAPE, declared
from gpus import gpu, local
from moeshapes.expand import Declarations
from moeshapes.record import RecordStore
from moeshapes.row import TunedRow
from moeshapes.statement import PROVEN
from moeshapes.verify import gpus, subjects
from moeshapes.verify.gpus import NO_GPUS, LocalGpus
from moeshapes.verify.merged_tables import MergedTables
from moeshapes.verify.plan import Planned, plan
from moeshapes.verify.run import run
from moeshapes.verify.site import AUTO, EMULATE, PORTABLE, PRODUCTION, Placement, Site
from small_repository import portable_row, tuned_line, tuned_row, write_small_repository
from table_text import text

COMMIT = "e4048607a5"
MI355X = gpu(gfx="gfx950", cu_num=256, triton="", aiter=COMMIT)
HERE = local(MI355X)
ROW = tuned_row()
BOUND = {"AITER_BF16_FP8_MOE_BOUND": "0"}


def place(row: TunedRow, backend: str = AUTO, here: LocalGpus = HERE) -> Placement:
    return Site(backend, here).place(row.key, row.is_portable)


@pytest.mark.parametrize("backend", [AUTO, PRODUCTION])
def test_aiters_rows_run_where_aiter_and_their_gpu_are(backend: str) -> None:
    assert place(ROW, backend) == Placement(PRODUCTION, MI355X)


@pytest.mark.parametrize(
    ("here", "missing"),
    [
        (NO_GPUS, "no gfx950/256 GPU is here"),
        (replace(NO_GPUS, problem="torch sees no GPU"), "no gfx950/256 GPU is here: torch sees no GPU"),
        (local(gpu()), "no gfx950/256 GPU is here"),
        (local(replace(MI355X, cu_num=128)), "no gfx950/256 GPU is here"),
        (local(replace(MI355X, aiter="")), "AITER is not installed beside the gfx950/256 GPU"),
    ],
)
def test_elsewhere_they_are_refused_where_only_aiter_will_do(here: LocalGpus, missing: str) -> None:
    assert place(ROW, PRODUCTION, here) == Placement(PRODUCTION, refused=missing)
    assert place(ROW, AUTO, here).backend == EMULATE


def test_rows_of_the_portable_kernels_are_not_aiters() -> None:
    assert place(portable_row(), PRODUCTION).refused == "a row of the portable kernels, not of AITER's"
    assert place(ROW, PORTABLE).refused == "not a row of the portable kernels"


# --- jobs


def planned(declarations: Declarations, *rows: TunedRow, merged: MergedTables | None = None) -> list[Planned]:
    return plan(declarations, rows, with_defaults=not rows, site=Site(PRODUCTION, HERE), merged=merged)


def declarations(tmp_path: Path) -> Declarations:
    interleaved = "recipe: a8w4\ngate_mode: interleave\nenv: {AITER_BF16_FP8_MOE_BOUND: 0}\npad: {inter_dim: 128}"
    found, findings = declared(tmp_path, tp4=SHAPE.replace("recipe: fp8_token", interleaved))
    assert not findings
    return found


def only(items: list[Planned]) -> Planned:
    (item,) = items
    assert item.job is not None
    return item


def test_a_job_carries_the_environment_of_its_use(tmp_path: Path) -> None:
    for item in planned(declarations(tmp_path)):
        assert item.job is not None
        assert (item.job.backend, item.job.device, item.job.gpu) == (PRODUCTION, "cuda", "gfx950/256")
        assert item.job.env == BOUND
        assert item.job.lookup.key[:2] == ("gfx950", "256")


def test_a_job_carries_what_the_tables_hold_beside_its_row() -> None:
    nothing = Declarations({}, (), ())
    other = tuned_row(act_type="ActivationType.Gelu", kernelName1="other")
    alone = only(planned(nothing, ROW))
    shadowed = only(planned(nothing, ROW, merged=MergedTables([other, ROW])))
    assert alone.job is not None
    assert shadowed.job is not None
    assert (alone.job.lookup.before, len(shadowed.job.lookup.before)) == ((), 1)
    assert alone.job.id != shadowed.job.id, "what is found without the row is part of what a record says"
    unmoved = only(planned(nothing, ROW, merged=MergedTables([ROW, tuned_row(16)])))
    assert unmoved.job == alone.job, "rows of other keys are not"


def test_emulated_jobs_carry_neither() -> None:
    (item,) = plan(Declarations({}, (), ()), [ROW], with_defaults=False)
    assert item.job is not None
    assert (item.job.env, item.job.lookup.key) == ({}, ())


@pytest.mark.parametrize(
    ("here", "lacks", "note"),
    [
        (NO_GPUS, True, ""),
        (local(replace(MI355X, aiter="")), False, "AITER is not installed beside the gfx950/256 GPU"),
        (HERE, False, ""),
    ],
)
def test_only_a_row_whose_gpu_is_not_here_rests_on_what_is_committed(here: LocalGpus, lacks: bool, note: str) -> None:
    """Whoever has the GPU learns what it lacks."""
    (item,) = plan(Declarations({}, (), ()), [ROW], with_defaults=False, site=Site(AUTO, here))
    assert (item.lacks_gpu, item.note) == (lacks, note)


def test_the_tables_are_those_of_the_installed_aiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "aiter"
    (package / "configs").mkdir(parents=True)
    for file in ("__init__.py", "fused_moe.py"):
        (package / file).write_text("raise AssertionError('imported')\n")
    theirs = tuned_line(act_type="ActivationType.Gelu", kernelName1="theirs")
    (package / "configs" / "tuned_fmoe.csv").write_bytes(text(theirs))
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "aiter", raising=False)
    root = write_small_repository(tmp_path / "repository", tuned_line(8))
    items, _ = subjects.plan_of(root, subjects.EVERYTHING, Site(AUTO, HERE))
    assert items[0].job is not None
    assert [("theirs" in line) for line in items[0].job.lookup.before] == [True]
    without, _ = subjects.plan_of(root, subjects.EVERYTHING, Site(AUTO, local(gpu())))
    assert without[0].job is not None
    assert without[0].job.lookup.before == ()


# --- evidence


def test_what_ran_is_proof_and_names_aiters_commit(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "build", tmp_path / "generated")
    device = {"kind": "gpu", "gfx": "gfx950", "cu_num": 256, "board": "a board", "memory": 1 << 38, "driver": "6.12"}
    pool = AnsweringPool(lambda job: result(job, "pass") | {"emulated": False, "device": device})
    (done,) = run([only(planned(Declarations({}, (), ()), ROW))], store, pool, fresh=False)
    assert done.status == PROVEN
    assert done.record
    assert errors(done.record) == []
    assert done.record["versions"]["aiter"] == COMMIT
    versions = {name: version for name, version in done.record["versions"].items() if name != "aiter"}
    assert errors({**done.record, "versions": versions}), "without the commit it is none"


def test_a_stand_in_of_aiter_proves_nothing(tmp_path: Path) -> None:
    """Its backend says emulated, and a record of AITER's own kernels has no such status."""
    store = RecordStore(tmp_path / "build", tmp_path / "generated")
    pool = AnsweringPool(lambda job: result(job, "pass") | {"emulated": True, "device": {"kind": "cpu"}})
    (done,) = run([only(planned(Declarations({}, (), ()), ROW))], store, pool, fresh=False)
    assert done.status != PROVEN
    assert done.record
    assert errors(done.record)


def test_a_gpu_says_which_aiter_is_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "aiter_version", lambda: COMMIT)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: FakeProperties())
    assert gpus.describe(0).aiter == COMMIT


class FakeProperties:
    name, gcnArchName = "a board", "gfx950:sramecc+:xnack-"  # noqa: N815 (torch's own spelling)
    multi_processor_count, total_memory = 256, 1 << 38
