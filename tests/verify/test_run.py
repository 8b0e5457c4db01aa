"""A plan is run once: what is vouched for comes from records, the rest from workers, and records say what they may."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import report_samples
from answers import SCHEMA, Answer, AnsweringPool, always, errors, result
from moeshapes.findings import Place
from moeshapes.record import RecordStore
from moeshapes.report.evidence import Evidence
from moeshapes.repository import load_declarations
from moeshapes.statement import EMULATED, FAIL, PROVEN
from moeshapes.verify.evidence import attested_name
from moeshapes.verify.job import Job
from moeshapes.verify.plan import Planned, plan
from moeshapes.verify.pool import Outcome
from moeshapes.verify.run import ERROR, SKIPPED, Verified, local_pool, run
from small_repository import LIMITED_MODEL, portable_row, tuned_row, write_both_backends, write_small_repository

OWN_TABLE = "triton_tiny_tuned_fmoe"
MI355X = {"kind": "gpu", "gfx": "gfx950", "cu_num": 256, "board": "a board", "memory": 1 << 38, "driver": "6.12"}


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(tmp_path / "build" / "records")


@pytest.fixture
def planned(tmp_path: Path) -> list[Planned]:
    """A row, its second declaration, a row that is skipped, and two default plans."""
    declarations, _ = load_declarations(write_small_repository(tmp_path))
    return plan(declarations, [tuned_row(8), tuned_row(8), tuned_row(512)], with_defaults=True)


def statuses(results: Sequence[Verified]) -> list[str]:
    return [each.status for each in results]


# --- what a committed record proves


def attested(root: Path, token: int = 8, table: str = OWN_TABLE, **changes: object) -> list[Verified]:
    """A row of the portable kernels, whose GPU is not here, with a record of it that was committed for `table`."""
    declarations, _ = load_declarations(write_both_backends(root))
    row = replace(portable_row(token), place=Place(f"generated/triton/{OWN_TABLE}.csv", 2))
    items = plan(declarations, [row], with_defaults=False)
    store = RecordStore(root / "build" / "records", root / "generated" / "records")
    device = {**report_samples.MI355X, "gfx": "sm_90", "cu_num": 132, "board": "NVIDIA H200"}
    proof = {**report_samples.record(row, items[0].subject.use), "device": device, **changes}
    store.save(proof, f"{table}/{attested_name(items[0].subject).rpartition('/')[2]}")
    return run(items, store, AnsweringPool(result), fresh=True, committed=Evidence(root))


def test_a_row_whose_gpu_is_not_here_rests_on_its_committed_proof(tmp_path: Path) -> None:
    assert statuses(attested(tmp_path)) == [PROVEN]


def test_a_row_rests_on_its_proof_in_the_folder_of_the_tables_former_name(tmp_path: Path) -> None:
    """As it does for the gate."""
    assert statuses(attested(tmp_path, table="former_tuned_fmoe")) == [PROVEN]


def test_a_bucket_that_is_too_large_to_emulate_rests_on_it_too(tmp_path: Path) -> None:
    assert statuses(attested(tmp_path, token=2048)) == [PROVEN]
    assert statuses(attested(tmp_path, token=2048, status="fail", reasons=["NaN"])) == [SKIPPED]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "fail", "reasons": ["NaN"]},
        {"launch": None},
        {"job": "x"},
        {"device": report_samples.MI355X},
    ],
)
def test_what_is_no_proof_of_the_row_is_not_rested_on(changes: dict[str, object], tmp_path: Path) -> None:
    assert statuses(attested(tmp_path, 8, OWN_TABLE, **changes)) == [EMULATED]


# --- each once, in order


def test_results_are_in_the_plans_order_and_each_job_is_run_once(planned: list[Planned], store: RecordStore) -> None:
    pool = AnsweringPool(result)
    told = list[Verified]()
    results = run(planned, store, pool, fresh=False, done=told.append)
    assert [each.subject for each in results] == [item.subject for item in planned]
    assert statuses(results) == [EMULATED, EMULATED, SKIPPED, EMULATED, EMULATED]
    assert len(pool.asked) == len(set(pool.asked)) == 3
    assert {id(each) for each in told} == {id(each) for each in results if each.status != SKIPPED}


def test_a_skip_carries_its_reason_and_no_record(planned: list[Planned], store: RecordStore) -> None:
    skipped = run(planned, store, AnsweringPool(result), fresh=False)[2]
    assert (skipped.note, skipped.record) == (planned[2].skipped, None)


def test_a_failure_is_recorded_with_its_reasons(planned: list[Planned], store: RecordStore) -> None:
    (failed, *_) = run(planned[:1], store, AnsweringPool(always("fail")), fresh=False)
    assert (failed.status, failed.note) == (FAIL, "off")
    assert planned[0].job
    assert store.load(planned[0].job.id) == failed.record


def test_an_error_is_told_and_not_recorded(planned: list[Planned], store: RecordStore) -> None:
    (broken, *_) = run(planned[:1], store, AnsweringPool(lambda job: "SIGSEGV\nlog"), fresh=False)
    assert (broken.status, broken.note, broken.record) == (ERROR, "SIGSEGV\nlog", None)
    assert not store.folder.exists()


# --- the cache


def test_what_passed_is_not_run_again(planned: list[Planned], store: RecordStore) -> None:
    first = run(planned, store, AnsweringPool(result), fresh=False)
    again = AnsweringPool(result)
    told = list[Verified]()
    second = run(planned, store, again, fresh=False, done=told.append)
    assert again.asked == []
    assert [each.cached for each in second] == [True, True, False, True, True]
    assert [each.record for each in second] == [each.record for each in first]
    assert len(told) == 4


def test_fresh_runs_everything_again(planned: list[Planned], store: RecordStore) -> None:
    run(planned, store, AnsweringPool(result), fresh=False)
    again = AnsweringPool(always("fail"))
    assert statuses(run(planned, store, again, fresh=True)) == [FAIL, FAIL, SKIPPED, FAIL, FAIL]
    assert len(again.asked) == 3


@pytest.mark.parametrize("answer", [always("fail"), lambda job: "crashed"], ids=["fail", "error"])
def test_what_did_not_pass_is_run_again(planned: list[Planned], store: RecordStore, answer: Answer) -> None:
    run(planned, store, AnsweringPool(answer), fresh=False)
    again = AnsweringPool(result)
    assert statuses(run(planned, store, again, fresh=False)) == [EMULATED, EMULATED, SKIPPED, EMULATED, EMULATED]
    assert len(again.asked) == 3


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"job": "JOB", "status": "emulated"}', "the record, cut"],
    ids=["empty", "brace", "list", "null", "bytes", "deep", "no evidence", "cut"],
)
def test_a_corrupt_record_is_ignored_and_replaced(
    planned: list[Planned], store: RecordStore, content: bytes | str
) -> None:
    assert planned[0].job
    name = planned[0].job.id
    run(planned[:1], store, AnsweringPool(result), fresh=False)
    whole = store.path(name).read_bytes()
    spoilt = whole[:-3] if isinstance(content, str) else content.replace(b"JOB", name.encode())
    store.path(name).write_bytes(spoilt)
    again = AnsweringPool(result)
    assert statuses(run(planned[:1], store, again, fresh=False)) == [EMULATED]
    assert again.asked == [name]
    assert store.load(name)


def test_a_record_of_another_job_is_no_evidence(planned: list[Planned], store: RecordStore) -> None:
    run(planned, store, AnsweringPool(result), fresh=False)
    first, other = planned[0].job, planned[-1].job
    assert first
    assert other
    store.path(first.id).write_bytes(store.path(other.id).read_bytes())
    assert store.load(first.id) is None


def test_what_finished_before_an_interrupt_is_kept(planned: list[Planned], store: RecordStore) -> None:
    def interrupt(job: Job) -> dict[str, Any]:
        if job.launch is not None:
            raise KeyboardInterrupt
        return result(job)

    with pytest.raises(KeyboardInterrupt):
        run(planned, store, AnsweringPool(interrupt), fresh=False)
    again = AnsweringPool(result)
    run(planned, store, again, fresh=False)
    assert len(again.asked) == 1


def test_an_interrupt_while_a_result_is_told_closes_the_pool(planned: list[Planned], store: RecordStore) -> None:
    closed = list[bool]()

    class Closing(AnsweringPool):
        def run(self, jobs: Sequence[Job], step: Callable[[], None] = lambda: None) -> Generator[Outcome, None, None]:
            try:
                yield from super().run(jobs, step)
            finally:
                closed.append(True)

    def interrupt(verified: Verified) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as interrupted:
        run(planned, store, Closing(result), fresh=False, done=interrupt)
    # While someone still holds the traceback, and with it every frame.
    assert interrupted.tb
    assert closed == [True]


# --- real records


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[Verified]:
    """Rows and default plans that workers judged: one passes, one fails, one is emulated without a row."""
    results = list[Verified]()
    for name, changes in (("sound", {}), ("limited", {"model": LIMITED_MODEL})):
        root = tmp_path_factory.mktemp(name)
        declarations, _ = load_declarations(write_small_repository(root, **changes))
        planned = plan(declarations, [tuned_row(8), tuned_row(512)], with_defaults=name == "sound")
        store = RecordStore(root / "records")
        found = run(planned, store, replace(local_pool(), workers=1), fresh=False)
        assert all(each.record is None or store.load(each.record["job"]) == each.record for each in found)
        results += found
    return results


def records(real: Sequence[Verified]) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(each.record)) for each in real if each.record]


def with_status(real: Sequence[Verified], status: str) -> dict[str, Any]:
    return next(record for record in records(real) if record["status"] == status)


def test_real_results_are_as_the_schema_says(real: list[Verified]) -> None:
    assert statuses(real) == [EMULATED, SKIPPED, EMULATED, EMULATED, FAIL, SKIPPED]
    assert [errors(record) for record in records(real)] == [[]] * 4


def test_a_failed_record_says_why(real: list[Verified]) -> None:
    reasons = with_status(real, FAIL)["reasons"]
    assert "the kernel ignores the model's swiglu_limit" in reasons


def test_a_made_up_answer_is_as_real_ones_are(planned: list[Planned], store: RecordStore) -> None:
    for verdict in ("pass", "fail"):
        for each in run(planned, store, AnsweringPool(always(verdict)), fresh=True):
            assert each.record is None or errors(each.record) == []


def test_a_record_that_two_share_is_shown_as_each_ones_own(tmp_path: Path) -> None:
    """The default plans of one problem are one job, whoever serves it."""
    declarations, _ = load_declarations(write_both_backends(tmp_path))
    planned = plan(declarations, [], with_defaults=True)
    assert len(planned) == 2 * len({item.job.id for item in planned if item.job})
    store, pool = RecordStore(tmp_path / "records"), AnsweringPool(result)
    for answers in (pool, AnsweringPool(result)):
        found = run(planned, store, answers, fresh=False)
        assert [v.record["use"]["id"] for v in found if v.record] == [v.subject.use.id for v in found]
        assert [v.record["key"]["gfx"] for v in found if v.record] == [v.subject.key.gfx for v in found]
    assert len(pool.asked) == 2
    assert all(v.cached for v in found)


def test_a_record_of_an_emulation_never_reads_proven(real: list[Verified]) -> None:
    record = with_status(real, EMULATED)
    assert errors({**record, "status": "proven"})
    assert errors({**record, "backend": "production"})
    assert errors({**record, "status": "proven", "backend": "production"})
    proven = {**record, "status": "proven", "backend": "production", "device": MI355X}
    assert not errors({**proven, "versions": {**record["versions"], "aiter": "e4048607a5"}})


@pytest.mark.parametrize("status", ["proven ", "pass", "attested", "error", "skipped", "", None])
def test_statuses_are_a_closed_set(real: list[Verified], status: object) -> None:
    assert errors({**with_status(real, EMULATED), "status": status})


def changed(record: dict[str, Any], **figures: Any) -> dict[str, Any]:
    """The record with figures of its first count replaced."""
    copy: dict[str, Any] = json.loads(json.dumps(record))
    counts = copy["numerics"]["counts"]
    counts[next(iter(counts))] |= figures
    return copy


@pytest.mark.parametrize(
    "figures",
    [{"over_limit": 1.01}, {"over_limit": "inf"}, {"block_over_limit": 2}, {"bad_values": 1}],
    ids=str,
)
def test_a_pass_carries_no_figure_beyond_its_limit(real: list[Verified], figures: dict[str, Any]) -> None:
    assert errors(changed(with_status(real, EMULATED), **figures))
    assert not errors(changed(with_status(real, FAIL), **figures))


def test_a_pass_has_no_reasons_and_a_failure_has(real: list[Verified]) -> None:
    assert errors({**with_status(real, EMULATED), "reasons": ["off"]})
    assert errors({**with_status(real, FAIL), "reasons": []})


def test_a_row_is_compared_with_a_baseline_and_a_default_plan_is_one(real: list[Verified]) -> None:
    of_row, of_plan = (next(r for r in records(real) if (r["launch"] is None) is none) for none in (False, True))
    assert of_row["numerics"]["baseline"]
    assert of_plan["numerics"]["baseline"] is None
    assert errors({**of_row, "launch": None})
    assert errors({**of_plan, "launch": of_row["launch"]})


@pytest.mark.parametrize("key", SCHEMA["required"])
def test_nothing_is_left_out_or_added(real: list[Verified], key: str) -> None:
    record = with_status(real, EMULATED)
    assert errors({name: value for name, value in record.items() if name != key})
    assert errors({**record, f"{key}_too": record[key]})


def test_records_of_one_job_differ_in_time_alone(real: list[Verified], tmp_path: Path) -> None:
    declarations, _ = load_declarations(write_small_repository(tmp_path))
    planned = plan(declarations, [tuned_row(8)], with_defaults=False)
    (again,) = run(planned, RecordStore(tmp_path / "records"), replace(local_pool(), workers=1), fresh=True)
    first = next(record for record in records(real) if record["job"] == records([again])[0]["job"])
    assert {**first, "time": ""} == {**records([again])[0], "time": ""}
