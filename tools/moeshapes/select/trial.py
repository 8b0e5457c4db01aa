"""Trials: candidates through the full verifier, each as the row that it would be in its table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from moeshapes.expand import Declarations
from moeshapes.findings import Place
from moeshapes.record import RecordStore
from moeshapes.report.speed import BASELINE, REPLACED, Comparison, speed_of
from moeshapes.repository import csv_path, tuned_name
from moeshapes.row import Key, TunedRow
from moeshapes.select.pairing import Candidate, Offer
from moeshapes.statement import EMULATED, FAIL, PROVEN
from moeshapes.verify.evidence import PASSED
from moeshapes.verify.merged_tables import MergedTables
from moeshapes.verify.plan import Planned, plan
from moeshapes.verify.pool import Pool
from moeshapes.verify.run import ERROR, SKIPPED, Verified, run
from moeshapes.verify.site import Site
from moeshapes.verify.timing import FASTER, SLOWER

_FROM_BEST_TO_WORST = (PROVEN, EMULATED, SKIPPED, ERROR, FAIL)


@dataclass(frozen=True)
class Tried:
    """A candidate and what the verifier says of it under each declared use."""

    candidate: Candidate
    verified: tuple[Verified, ...]

    @property
    def status(self) -> str:
        """Of its uses' statuses the one that says least: PROVEN where it is under every use."""
        return max((each.status for each in self.verified), key=_FROM_BEST_TO_WORST.index)

    @property
    def ratio(self) -> float | None:
        """Its time over that of what runs without a row, the geometric mean of its uses; None where it was not timed.

        Both ran by turns in one process. The tuner's own times say less: they hold other work for other kernels.
        """
        compared = [compared_with(each, BASELINE) for each in self.verified]
        ratios = [1 + found.change.centre for found in compared if found]
        return geometric_mean(ratios) if ratios and len(ratios) == len(compared) else None

    @property
    def why_lost(self) -> str:
        """Why it may not be kept, whatever the others do; empty where it may."""
        for each in self.verified:
            if each.status not in PASSED:
                return f"{each.status} under {each.subject.use.id}: {each.note.splitlines()[0] if each.note else ''}"
        return next((reason for each in self.verified if (reason := _too_slow(each))), "")


def _too_slow(verified: Verified) -> str:
    use = verified.subject.use.id
    baseline, replaced = (compared_with(verified, other) for other in (BASELINE, REPLACED))
    if baseline and baseline.verdict != FASTER:
        return f"{baseline.verdict}, not faster, than what runs without it under {use}"
    if replaced and replaced.verdict == SLOWER:
        return f"slower than the row that it would replace under {use}"
    return ""


def compared_with(verified: Verified, other: str) -> Comparison | None:
    """What was timed of the row against BASELINE or REPLACED; None where it was not."""
    speed = speed_of(verified.record) if verified.record else None
    return speed.against(other) if speed else None


@dataclass(frozen=True)
class Bench:
    """What candidates are tried with. `shipped` are the tuned rows that are there, which candidates would replace."""

    declarations: Declarations
    site: Site
    merged: MergedTables
    pool: Pool
    store: RecordStore
    shipped: Sequence[TunedRow]
    fresh: bool = False


def try_all(offered: Iterable[Offer], bench: Bench, done: Callable[[Verified], None]) -> dict[Key, list[Tried]]:
    """Every candidate under every declared use of its key, as `run` does it; those of a key in the order offered.

    A use that `done` is not told of has no job. What stored records vouch for is not run again.
    """
    candidates = [(offer.key, candidate) for offer in offered for candidate in offer.candidates]
    rows = shipped_as([candidate.row for _, candidate in candidates], bench.declarations)
    found: dict[TunedRow, list[Verified]] = defaultdict(list)
    for verified in run(plan_of(rows, bench), bench.store, bench.pool, bench.fresh, done):
        if verified.subject.row:
            found[verified.subject.row].append(verified)
    tried: dict[Key, list[Tried]] = defaultdict(list)
    for (key, candidate), row in zip(candidates, rows, strict=True):
        tried[key].append(Tried(candidate, tuple(found[row])))
    return tried


def plan_of(rows: Sequence[TunedRow], bench: Bench) -> list[Planned]:
    """The verifier's plan of rows at places of their own, timed against other rows of their keys that are shipped."""
    there = {(row.key, row.is_portable): row.launch() for row in bench.shipped if not row.tag}
    before = {row.place: there.get((row.key, row.is_portable), row.launch()) for row in rows}
    replaced = {row.place: before[row.place] for row in rows if before[row.place] != row.launch()}
    return plan(bench.declarations, rows, False, bench.site, bench.merged, timed=True, replaced=replaced)


def shipped_as(rows: Sequence[TunedRow], declarations: Declarations) -> list[TunedRow]:
    """The rows in the tables that they would be adopted into, each on a line of its own.

    What AITER finds depends on which table has a row.
    """
    csvs = [csv_path(tuned_name(declarations.of_row(row)[0].csv)) for row in rows]
    return [replace(row, place=Place(csv, line)) for line, (row, csv) in enumerate(zip(rows, csvs, strict=True), 2)]
