"""Keeping: chosen rows into their tables, and the evidence of them under the names of shipped rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from moeshapes.adopt import AdoptResult, adopt
from moeshapes.record import RECORDS, RecordStore
from moeshapes.select.choice import Choice, source_table
from moeshapes.select.trial import Bench, plan_of, shipped_as
from moeshapes.statement import PROVEN
from moeshapes.table import read_tuned_rows
from moeshapes.verify.evidence import attested_name, vouching_for

UNPROVEN = "emulated only, not proven on the GPU that it is for"


def keep(choices: Sequence[Choice], note: str, root: Path, bench: Bench, allow_emulated: bool) -> list[AdoptResult]:
    """Adopts what is kept of each key, the proven rows and, where they are allowed, the emulated ones after them."""
    proven = [choice for choice in choices if choice.may_be_written]
    emulated = [choice for choice in choices if choice.kept and not choice.may_be_written] if allow_emulated else []
    named = ((proven, note), (emulated, f"{note}; {UNPROVEN}"))
    return [_adopt(file, rows, said, root, bench) for kept, said in named for file, rows in _by_file(kept)]


def _by_file(choices: Iterable[Choice]) -> Iterator[tuple[str, list[Choice]]]:
    kept = [choice for choice in choices if choice.kept]
    for file in dict.fromkeys(choice.kept.candidate.row.place.file for choice in kept if choice.kept):
        yield file, [each for each in kept if each.kept and each.kept.candidate.row.place.file == file]


def _adopt(file: str, choices: Sequence[Choice], note: str, root: Path, bench: Bench) -> AdoptResult:
    rows = [choice.kept.candidate.row for choice in choices if choice.kept]
    source = source_table(rows, file)
    return adopt(source, read_tuned_rows(source), note, root, bench.declarations)


def attest(choices: Iterable[Choice], root: Path, bench: Bench) -> Iterator[Path]:
    """Writes the records of proven rows that were adopted where a repository has its attested ones; yields their files.

    Nothing is run again: the job of an adopted row is that of the candidate that it was.
    """
    attested = RecordStore(bench.store.folder, root / RECORDS)
    kept = [choice.kept for choice in choices if choice.kept and choice.may_be_written]
    rows = shipped_as([tried.candidate.row for tried in kept], bench.declarations)
    for item in plan_of(rows, bench):
        record = attested.load(item.job.id) if item.job else None
        if record and record["status"] == PROVEN:
            yield attested.save(vouching_for(record, item.subject), attested_name(item.subject))
