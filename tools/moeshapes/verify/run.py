"""Runs a plan: what is vouched for already comes from the records, the rest from workers, and becomes records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from moeshapes.record import RECORD_FORMAT, RecordStore
from moeshapes.verify.job import Job
from moeshapes.verify.plan import Planned, Subject, versions_in_use
from moeshapes.verify.pool import Outcome, Pool

EMULATED, FAIL, ERROR, SKIPPED = "emulated", "fail", "error", "skipped"
JOB_LIMIT_S = 900.0


@dataclass(frozen=True)
class Verified:
    """What is known of a subject now. `record` is None for errors and skips; `note` says why then."""

    subject: Subject
    status: str
    record: Mapping[str, Any] | None = None
    note: str = ""
    cached: bool = False


def cpu_pool() -> Pool:
    """A worker a core: small matrices gain more from a second process than from a second thread."""
    return Pool(workers=max(os.cpu_count() or 1, 1), threads=1, limit_s=JOB_LIMIT_S)


def run(
    planned: Sequence[Planned],
    store: RecordStore,
    pool: Pool,
    fresh: bool,
    done: Callable[[Verified], None] = lambda verified: None,
) -> list[Verified]:
    """Everything planned, in its order. `done` is told of each that has a job as it is known.

    `fresh` ignores stored records. Raises OSError where a record cannot be written.
    """
    known: dict[int, Verified] = {}
    waiting: dict[str, list[int]] = {}
    for index, item in enumerate(planned):
        settled = _settled(item, store, fresh)
        if settled is None:
            assert item.job is not None
            waiting.setdefault(item.job.id, []).append(index)
        else:
            known[index] = settled
            if item.job is not None:
                done(settled)
    jobs = [job for job in (planned[indices[0]].job for indices in waiting.values()) if job is not None]
    versions = versions_in_use()
    with closing(pool.run(jobs)) as outcomes:
        for outcome in outcomes:
            for index in waiting[outcome.job.id]:
                known[index] = _verified(planned[index].subject, outcome, store, versions)
                done(known[index])
    return [known[index] for index in range(len(planned))]


def _settled(item: Planned, store: RecordStore, fresh: bool) -> Verified | None:
    if item.job is None:
        return Verified(item.subject, SKIPPED, note=item.skipped)
    record = None if fresh else store.load(item.job.id)
    # Only a pass saves the work: a failure is worth seeing again, with the code that is here now.
    if record is None or record.get("status") != EMULATED:
        return None
    return Verified(item.subject, EMULATED, record, cached=True)


def _verified(subject: Subject, outcome: Outcome, store: RecordStore, versions: Mapping[str, str]) -> Verified:
    if outcome.result is None:
        return Verified(subject, ERROR, note=outcome.error)
    record = _record(subject, outcome.job, outcome.result, versions)
    store.save(record)
    return Verified(subject, record["status"], record, note="; ".join(record["reasons"]))


def _record(subject: Subject, job: Job, result: Mapping[str, Any], versions: Mapping[str, str]) -> dict[str, Any]:
    """A pass by emulation reads `emulated`; nothing here can make it `proven`."""
    return {
        "format": RECORD_FORMAT,
        "job": job.id,
        "status": EMULATED if result["verdict"] == "pass" else FAIL,
        "reasons": result["reasons"],
        "key": {"gfx": subject.key.gfx, "cu_num": subject.key.cu_num, **asdict(subject.key.shape)},
        "launch": job.launch,
        "use": subject.use.as_json() | {"id": subject.use.id},
        "backend": job.backend,
        "device": job.device,
        "versions": dict(versions),
        "seed": job.seed,
        "numerics": result["numerics"],
        "launched": result["launched"],
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
