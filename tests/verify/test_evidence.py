"""What proves a row, what does not whatever was planned, and where the evidence is kept."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from answers import Answer, AnsweringPool, errors, result
from gpus import gpu, local
from moeshapes.expand import Declarations
from moeshapes.record import RecordStore
from moeshapes.report.evidence import Evidence
from moeshapes.statement import EMULATED, FAIL, PROVEN
from moeshapes.verify.plan import Planned, plan
from moeshapes.verify.run import run
from moeshapes.verify.site import AUTO, Site
from small_repository import tuned_row

H200 = {"kind": "gpu", "gfx": "sm_90", "cu_num": 132, "board": "a board", "memory": 1 << 37, "driver": "570.1"}
SHIPPED = "generated/triton/tiny_tuned_fmoe.csv"


def portable_item(file: str = SHIPPED) -> Planned:
    """A row of portable kernels, planned for an H200 that is here."""
    names = {
        f"kernelName{n}": f"triton_moe{n}_afp4_wfp4_bf16_t16x64x128_w4_s2{mode}"
        for n, mode in ((1, ""), (2, "_atomic"))
    }
    row = tuned_row(8, gfx="sm_90", cu_num="132", **names)
    row = replace(row, place=replace(row.place, file=file))
    (item,) = plan(Declarations({}, (), ()), [row], with_defaults=False, site=Site(AUTO, local(gpu())))
    return item


def ran_on(device: dict[str, Any], emulated: bool = False, verdict: str = "pass") -> Answer:
    return lambda job: result(job, verdict) | {"emulated": emulated, "device": device}


def attested(store: RecordStore) -> list[Path]:
    return sorted(store.named.rglob("*")) if store.named else []


@pytest.fixture
def both(tmp_path: Path) -> RecordStore:
    """Where emulated and where attested records go."""
    return RecordStore(tmp_path / "build" / "records", tmp_path / "generated" / "records")


def test_a_row_is_proven_by_the_kind_of_gpu_that_it_is_for(both: RecordStore) -> None:
    item = portable_item()
    (done,) = run([item], both, AnsweringPool(ran_on(H200)), fresh=False)
    assert (done.status, done.note) == (PROVEN, "")
    assert done.record
    assert errors(done.record) == []
    assert done.record["device"] == H200
    assert done.record["versions"]["triton"] == "3.9.0"
    folder, file = attested(both)
    assert folder.name == "tiny_tuned_fmoe"
    assert re.fullmatch(r"[0-9a-f]{20}-undeclared-row-sm_90-132\.json", file.name)
    assert json.loads(file.read_text()) == done.record
    assert not both.folder.exists()


LIARS = {
    "interpreter": ran_on(H200, emulated=True),
    "another architecture": ran_on({**H200, "gfx": "sm_80"}),
    "fewer units": ran_on({**H200, "cu_num": 114}),
    "a processor": ran_on({"kind": "cpu"}),
}


@pytest.mark.parametrize("answer", LIARS.values(), ids=LIARS)
def test_what_ran_elsewhere_proves_nothing_whatever_was_planned(answer: Answer, both: RecordStore) -> None:
    (done,) = run([portable_item()], both, AnsweringPool(answer), fresh=False)
    assert done.status == EMULATED
    assert errors(done.record) == []
    assert attested(both) == []
    assert len(list(both.folder.iterdir())) == 1


def test_a_record_that_claims_proof_without_a_gpu_breaks_the_schema(both: RecordStore) -> None:
    (done,) = run([portable_item()], both, AnsweringPool(ran_on({"kind": "cpu"})), fresh=False)
    assert done.record
    assert errors({**done.record, "status": PROVEN})
    assert errors({**done.record, "device": {"kind": "gpu"}})
    assert errors({**done.record, "device": {**H200, "kind": "cpu"}})
    assert errors({**done.record, "versions": {**done.record["versions"], "triton": ""}})


def test_proof_is_taken_from_where_it_was_committed(both: RecordStore) -> None:
    run([portable_item()], both, AnsweringPool(ran_on(H200)), fresh=False)
    again = AnsweringPool(ran_on(H200))
    (cached,) = run([portable_item()], both, again, fresh=False)
    assert (cached.status, cached.cached, again.asked) == (PROVEN, True, [])


def test_a_proof_of_a_gpu_that_is_not_here_is_called_committed(both: RecordStore, tmp_path: Path) -> None:
    (made,) = run([portable_item()], both, AnsweringPool(ran_on(H200)), fresh=False)
    assert made.subject.row
    items = plan(Declarations({}, (), ()), [made.subject.row], with_defaults=False)
    (rested,) = run(items, both, AnsweringPool(result), fresh=False, committed=Evidence(tmp_path))
    assert (made.shown_status, rested.shown_status) == ("proven", "proven (committed)")


def test_a_failure_on_the_rows_own_gpu_replaces_its_proof(both: RecordStore) -> None:
    run([portable_item()], both, AnsweringPool(ran_on(H200)), fresh=False)
    (failed,) = run([portable_item()], both, AnsweringPool(ran_on(H200, verdict="fail")), fresh=True)
    assert failed.status == FAIL
    _, file = attested(both)
    assert json.loads(file.read_text())["status"] == FAIL
    (again,) = run([portable_item()], both, AnsweringPool(ran_on(H200)), fresh=False)
    assert (again.status, again.cached) == (PROVEN, False)


@pytest.mark.parametrize("file", ["elsewhere/tiny_tuned_fmoe.csv", "/generated/a_tuned_fmoe.csv", "a_tuned_fmoe.csv"])
def test_rows_that_are_not_shipped_leave_generated_as_it_is(file: str, both: RecordStore) -> None:
    (done,) = run([portable_item(file)], both, AnsweringPool(ran_on(H200)), fresh=False)
    assert done.status == PROVEN
    assert attested(both) == []
    (cached,) = run([portable_item(file)], both, AnsweringPool(ran_on(H200)), fresh=False)
    assert cached.cached


def test_a_row_that_could_run_and_was_emulated_says_why(tmp_path: Path) -> None:
    row, store = portable_item().subject.row, RecordStore(tmp_path)
    assert row
    items = plan(Declarations({}, (), ()), [row], with_defaults=False)
    for cached in (False, True):
        (done,) = run(items, store, AnsweringPool(result), fresh=False)
        assert (done.status, done.note, done.cached) == (EMULATED, "no sm_90/132 GPU is here", cached)
