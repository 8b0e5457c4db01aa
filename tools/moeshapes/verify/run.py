"""Runs a plan: what is vouched for already comes from the records, the rest from workers, and becomes records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from moeshapes.record import RecordStore
from moeshapes.report.evidence import Evidence
from moeshapes.statement import PROVEN
from moeshapes.verify.evidence import PASSED, attested_name, is_attested, record_of, vouching_for
from moeshapes.verify.gpus import Gpu
from moeshapes.verify.job import Job
from moeshapes.verify.plan import Planned, Subject
from moeshapes.verify.pool import Outcome, Pool
from moeshapes.verify.precompile import processes_here

ERROR, SKIPPED = "error", "skipped"
JOB_LIMIT_S = 900.0


@dataclass(frozen=True)
class Verified:
    """What is known of a subject now. `record` is None for errors and skips; `note` says why it is no more.

    `saved` is the record's file where this run wrote it. `committed` says of a cached proof that it was made elsewhere,
    and stands among the repository's records.
    """

    subject: Subject
    status: str
    record: Mapping[str, Any] | None = None
    note: str = ""
    cached: bool = False
    saved: Path | None = None
    committed: bool = False

    @property
    def shown_status(self) -> str:
        """The status, with what it rests on where nothing ran: `proven (committed)`, `emulated (cached)`."""
        return f"{self.status} ({'committed' if self.committed else 'cached'})" if self.cached else self.status


def local_pool(gpus: Sequence[Gpu] = (), limit_s: float = JOB_LIMIT_S) -> Pool:
    """A worker a core, since small matrices gain more from a second process than from a second thread; one a GPU."""
    workers = max(os.cpu_count() or 1, 1)
    return Pool(workers, threads=1, limit_s=limit_s, gpus=gpus, compilers=processes_here())


def run(
    planned: Sequence[Planned],
    store: RecordStore,
    pool: Pool,
    fresh: bool,
    done: Callable[[Verified], None] = lambda verified: None,
    committed: Evidence | None = None,
) -> list[Verified]:
    """Everything planned, in its order. `done` is told of each that has a job as it is known.

    `fresh` ignores stored records of what can be run here. What cannot rests on the proofs that are `committed`. Raises
    OSError where a record cannot be written.
    """
    known: dict[int, Verified] = {}
    waiting: dict[str, list[int]] = {}
    for index, item in enumerate(planned):
        settled = _settled(item, store, fresh, committed)
        if settled is None:
            assert item.job is not None
            waiting.setdefault(item.job.id, []).append(index)
        else:
            known[index] = settled
            if item.job is not None:
                done(settled)
    jobs = [job for job in (planned[indices[0]].job for indices in waiting.values()) if job is not None]
    with closing(pool.run(jobs)) as outcomes:
        for outcome in outcomes:
            time = datetime.now(timezone.utc)
            for index in waiting[outcome.job.id]:
                known[index] = _verified(planned[index], outcome, store, time)
                done(known[index])
    return [known[index] for index in range(len(planned))]


def _settled(item: Planned, store: RecordStore, fresh: bool, committed: Evidence | None) -> Verified | None:
    proof = _proof_from_elsewhere(item, committed) if committed else None
    if proof is not None:
        return Verified(item.subject, PROVEN, proof, cached=True, committed=True)
    if item.job is None:
        return Verified(item.subject, SKIPPED, note=item.skipped)
    record = None if fresh else store.load(item.job.id, attested_name(item.subject))
    # Only a pass saves the work: a failure is worth seeing again, with the code that is here now.
    if record is None or record["status"] not in PASSED or not _is_timed(record, item.job):
        return None
    own = vouching_for(record, item.subject)
    return Verified(item.subject, record["status"], own, note=item.note, cached=True)


def _proof_from_elsewhere(item: Planned, committed: Evidence) -> Mapping[str, Any] | None:
    """The committed proof of a row whose GPU is not here: an emulation would show less, or is too much for a CPU."""
    row, use = item.subject.row, item.subject.use
    record = committed.attested(row, use) if row and item.lacks_gpu else None
    return record if record and record["status"] == PROVEN else None


def _is_timed(record: Mapping[str, Any], job: Job) -> bool:
    """Whether it says of speed what the job asks."""
    wanted = {"baseline", *(["replaced"] if job.replaced else [])} if job.speed else set()
    speed = record["speed"] or {"comparisons": []}
    return wanted <= {compared["against"] for compared in speed["comparisons"]}


def _verified(item: Planned, outcome: Outcome, store: RecordStore, time: datetime) -> Verified:
    subject, result = item.subject, outcome.result
    if result is None:
        return Verified(subject, ERROR, note=outcome.error)
    record = record_of(item, outcome.job, result, time)
    # A failure on the row's own GPU takes the place of older evidence that it works. What a checkpoint's weights show
    # is kept beside it: who reads the record has not the checkpoint.
    named = is_attested(subject.key, result) and outcome.job.weights is None
    saved = store.save(record, attested_name(subject) if named else "")
    return Verified(subject, record["status"], record, note="; ".join(record["reasons"]) or item.note, saved=saved)
