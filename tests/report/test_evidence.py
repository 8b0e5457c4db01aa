from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from moeshapes.claim import judged_uses
from moeshapes.gate.run import gate
from moeshapes.record import CACHE, RECORDS
from moeshapes.report.evidence import Evidence
from moeshapes.report.gather import pull_request_of
from moeshapes.report.proof import NO_RECORD, Proof, proofs_of
from moeshapes.repository import load_declarations
from moeshapes.statement import EMULATED, FAIL, PROVEN
from pull_requests import FORGERIES, Edit, make_origin
from report_samples import FASTER, record, rows_of, save, speed
from small_repository import tuned_line, write_small_repository
from table_text import write


def proofs(root: Path, evidence: Evidence | None = None) -> list[Proof]:
    return list(proofs_of(rows_of(root), load_declarations(root)[0], evidence or Evidence(root)))


def cached(
    root: Path, name: str, time: str = "2026-11-30T04:00:00+00:00", launched: bool = True, **count: object
) -> None:
    (row,) = rows_of(root)
    (use,) = judged_uses(row, load_declarations(root)[0])
    facts = record(row, use, None, **count)
    emulated = {"backend": "emulate", "device": {"kind": "cpu"}, "status": "emulated", "time": time}
    facts["launch"] = facts["launch"] if launched else None
    write(root / CACHE / f"{name}.json", json.dumps({**facts, **emulated}).encode())


def test_a_row_without_a_record(tmp_path: Path) -> None:
    (proof,) = proofs(write_small_repository(tmp_path, tuned_line()))
    assert (proof.status, proof.device, proof.verdict) == (NO_RECORD, NO_RECORD, "")
    assert (proof.bad_values, proof.deterministic, proof.baseline) == (None, None, None)
    assert proof.declared


def test_a_proven_row(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line())
    list(save(root, rows_of(root)[0], speed(FASTER)))
    (proof,) = proofs(root)
    assert (proof.status, proof.device, proof.verdict) == (PROVEN, "MI355X gfx950/256", "faster")
    assert (proof.bad_values, proof.deterministic, proof.over_limit) == (0, True, 0.41)


def test_a_failed_row(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line())
    list(save(root, rows_of(root)[0], bad_values=3, over_limit="inf", deterministic=False, spread=0.5))
    (proof,) = proofs(root)
    assert (proof.status, proof.bad_values, proof.over_limit) == (FAIL, 3, float("inf"))
    assert (proof.deterministic, proof.spread) == (False, 0.5)
    assert proof.reasons


def test_a_record_of_a_row_that_was_edited_since_is_of_no_row(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line())
    list(save(root, rows_of(root)[0]))
    write_small_repository(root, tuned_line(block_m="32"))
    assert [proof.status for proof in proofs(root)] == [NO_RECORD]


def test_a_record_under_the_name_of_another_is_not_of_that(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line(1), tuned_line(8))
    first, second = rows_of(root)
    (path,) = save(root, first)
    (other,) = save(root, second)
    other.write_bytes(path.read_bytes())
    assert [proof.status for proof in proofs(root)] == [PROVEN, NO_RECORD]


def test_what_is_no_record_is_named_with_the_reason(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line())
    (path,) = save(root, rows_of(root)[0])
    path.write_bytes(b'{"format": NaN}')
    evidence = Evidence(root)
    assert [proof.status for proof in proofs(root, evidence)] == [NO_RECORD]
    ((file, why),) = evidence.unread.items()
    assert file.startswith(RECORDS)
    assert "NaN" in why


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path / "root", tuned_line())
    (path,) = save(root, rows_of(root)[0])
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    evidence = Evidence(root)
    assert [proof.status for proof in proofs(root, evidence)] == [NO_RECORD]
    assert evidence.unread


def test_the_newest_of_the_local_records_counts(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line())
    cached(root, "a", "2026-11-30T04:00:00+00:00", over_limit=0.2)
    cached(root, "b", "2026-11-30T05:00:00+00:00", over_limit=0.9)
    cached(root, "c", "2026-11-30T03:00:00+00:00", over_limit=0.3)
    (proof,) = proofs(root)
    assert (proof.status, proof.over_limit, proof.device) == (EMULATED, 0.9, "emulated on a CPU")


def test_local_records_of_default_plans_are_of_no_row(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line())
    cached(root, "a")
    cached(root, "b", launched=False, time="2026-11-30T05:00:00+00:00")
    write(root / CACHE / "c.json", b'{"launch": {}}')
    write(root / CACHE / "d.json", b"[]")
    evidence = Evidence(root)
    assert [proof.status for proof in proofs(root, evidence)] == [EMULATED]
    assert [file.rpartition("/")[2] for file in evidence.unread] == ["c.json", "d.json"]


def test_an_attested_record_counts_before_a_local_one(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path, tuned_line())
    cached(root, "a")
    list(save(root, rows_of(root)[0]))
    assert [proof.status for proof in proofs(root)] == [PROVEN]


@pytest.mark.parametrize(("edit", "said"), FORGERIES.values(), ids=FORGERIES)
def test_the_gate_and_the_report_rely_on_the_same_records(tmp_path: Path, edit: Edit, said: str) -> None:
    """A record that says proven and ran elsewhere, or that its name denies, is a proof to neither."""
    change = make_origin(tmp_path, tuned_line(1)).clone().table(tuned_line(1), tuned_line(8)).prove(8, edit=edit)
    judged = gate(change.root, "origin/main", today=date(2026, 11, 30))
    request = pull_request_of(change.root, "origin/main")
    assert judged.proven == 0
    assert [proof.status for proof in request.proofs] == [NO_RECORD]
    assert request.unread == tuple((found.place.file, found.message) for found in judged.findings)
    assert request.unread[0][1].startswith(said)


def test_a_record_in_the_folder_of_the_tables_former_name(tmp_path: Path) -> None:
    change = make_origin(tmp_path, tuned_line(1)).clone().table(tuned_line(1), tuned_line(8)).prove(8)
    (change.root / RECORDS / "tiny_tuned_fmoe").rename(change.root / RECORDS / "former_tuned_fmoe")
    assert gate(change.root, "origin/main", today=date(2026, 11, 30)).proven == 1
    assert [proof.status for proof in pull_request_of(change.root, "origin/main").proofs] == [PROVEN]
