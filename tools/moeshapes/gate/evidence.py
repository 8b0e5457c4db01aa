"""Evidence: whether the records of a change prove its rows, and what they take back that was proven."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from moeshapes.claim import Claim, judged_uses, records_by_name
from moeshapes.findings import Finding, has_errors
from moeshapes.gate.attestation import Attestations
from moeshapes.gate.base import Base
from moeshapes.gate.tree import WorkingTree
from moeshapes.gate.verdict import Bench, of_new_row, of_old_row
from moeshapes.record import MAX_BYTES, RECORDS, SIGNATURE, RecordError, parse_record
from moeshapes.row import TunedRow
from moeshapes.row_diff import RowDiff
from moeshapes.rule import Rule, Severity
from moeshapes.statement import EMULATED, Statement
from moeshapes.use import Use

UNPROVEN = Rule(
    "MOE501", "unproven-row", Severity.ERROR,
    what="A new or changed tuned row has no record, made on the GPU that it is for, under one of its uses.",
    why="Tuners draw data without padding, limits and skew: rows that won there returned NaN in production.",
    fix="Verify the row on its GPU and commit the records.",
)  # fmt: skip
EVIDENCE_REMOVED = Rule(
    "MOE510", "evidence-removed", Severity.ERROR,
    what="The record of a row that is still there is gone, or is an emulation or an older one now.",
    why="What it said, good or bad, is known; without it nobody will see a change for the worse.",
    fix="Restore the record, or commit the one that replaces it.",
)  # fmt: skip
USE_CHANGED = Rule(
    "MOE513", "use-changed", Severity.WARNING,
    what="Rows had records under a use that is declared otherwise now.",
    why="Padding, limits and environment change what a row computes: the records say nothing of it any more.",
    fix="Verify the rows again.",
)  # fmt: skip


@dataclass
class Evidence:
    """What the records say of a tree's rows since a base. `old` are the rows whose launch the base had."""

    tree: WorkingTree
    base: Base
    diff: RowDiff
    attestations: Attestations
    bench: Bench
    proven: set[TunedRow] = field(default_factory=set)
    unproven: set[TunedRow] = field(default_factory=set)

    @cached_property
    def replaced(self) -> Mapping[TunedRow, TunedRow]:
        """The base's row by the one that takes its place with another launch."""
        return {change.after: change.before for change in self.diff.changed}

    @cached_property
    def old(self) -> list[TunedRow]:
        to_prove = set(self.diff.to_prove)
        return [row for row in self.tree.claims if row not in to_prove]

    @cached_property
    def touched(self) -> frozenset[str]:
        """The records that changed, or whose signatures did."""
        return frozenset(path.removesuffix(SIGNATURE) for path in self.base.changed if path.startswith(f"{RECORDS}/"))

    @cached_property
    def _before(self) -> Mapping[str, list[str]]:
        return records_by_name(self.base.records)

    @cached_property
    def _base_statement(self) -> Mapping[str, Statement]:
        """What the base's records say that others are compared with, by path; read at one go."""
        paths = {path for claim in self._compared() if (path := claim.among(self._before))}
        contents = self.base.contents(sorted(paths), self.base.records, MAX_BYTES)
        return {path: said for path, content in contents.items() if (said := _statement(content))}

    def _compared(self) -> Iterator[Claim]:
        """What the base claimed of rows that are replaced, and of those whose record changed."""
        for row in self.replaced:
            yield from map(self._former, self.tree.claims.get(row, ()))
        touched = (claim for row in self.old for claim in self.tree.claims[row] if self._is_touched(claim))
        yield from map(self._former, touched)

    def _is_touched(self, claim: Claim) -> bool:
        return claim.among(self.tree.records) in self.touched

    def _former(self, claim: Claim) -> Claim:
        """What the base claimed in its place: of the row that was there, under the use as it was declared there.

        A use that was declared otherwise has the same id; one that was renamed says the same but for it. Where the
        base's declaration cannot be read, its record says under which use the row was judged.
        """
        same = Claim(self.replaced.get(claim.row, claim.row), claim.use)
        if self.base.declares_the_same:
            return same
        declared, faults = self.base.declarations
        uses = judged_uses(same.row, declared)
        if claim.use in uses or (faults and not declared.uses_of(same.row) and same.among(self._before)):
            return same
        gone = [use for use in uses if all(use != each.use for each in self.tree.claims[claim.row])]
        found = [use for use in gone if use.id == claim.use.id] or [use for use in gone if _renamed(use, claim.use)]
        return Claim(same.row, next(iter(found), claim.use))

    def findings(self) -> Iterator[Finding]:
        """All that the records, or the lack of them, say against the change. Fills `proven` and `unproven`."""
        for row in self.diff.to_prove:
            if claims := self.tree.claims.get(row):
                found = list(self._of_new(row, claims))
                yield from found
                if not has_errors(found) and not any(self._faulty(claim) for claim in claims):
                    self.proven.add(row)
        for row in self.old:
            yield from self._of_old(row)

    def record_faults(self) -> list[Finding]:
        """What is wrong with the files of records that the change rests on or brings."""
        for path in sorted(self.touched):
            if path in self.tree.records.get(path.rpartition("/")[2], ()):
                self.attestations.at(path)
        return list(self.attestations.faults.values())

    def _faulty(self, claim: Claim) -> bool:
        return claim.among(self.tree.records) in self.attestations.faults

    def _of_new(self, row: TunedRow, claims: Iterable[Claim]) -> Iterator[Finding]:
        missing: list[Claim] = []
        replaces = row in self.replaced
        for claim in claims:
            path = claim.among(self.tree.records)
            said = self.attestations.at(path) if path else None
            if path is None or (said and said.status == EMULATED):
                missing.append(claim)
            elif said:
                before = self._of_base(self._former(claim)) if replaces else None
                yield from of_new_row(claim, said, before, self.bench, replaces)
        if missing:
            yield self._unproven(row, missing)

    def _unproven(self, row: TunedRow, missing: list[Claim]) -> Finding:
        uses = ", ".join(f"`{claim.use.id}`" for claim in missing)
        replaced = self.replaced.get(row)
        how = f"changed, {_edits(replaced, row)}," if replaced else "new"
        gpu = f"{row.key.gfx}/{row.key.cu_num}"
        message = f"{row.key} is {how} since {self.bench.base}: no record of a {gpu} GPU proves it under {uses}"
        return Finding(UNPROVEN, row.place, message, missing[0].how_to_verify(self.bench.base))

    def _of_old(self, row: TunedRow) -> Iterator[Finding]:
        for claim in self.tree.claims[row]:
            path = claim.among(self.tree.records)
            if path is None:
                self.unproven.add(row)
                if former := claim.among(self._before):
                    yield self._removed(claim, f"its record {former} under `{claim.use.id}` is gone")
            elif path in self.touched and (said := self.attestations.at(path)):
                before = self._of_base(self._former(claim))
                if how := _is_less(said, before):
                    yield self._removed(claim, f"its record under `{claim.use.id}` {how}")
                yield from of_old_row(claim, said, before, self.bench)

    def _removed(self, claim: Claim, what: str) -> Finding:
        return Finding(EVIDENCE_REMOVED, claim.row.place, f"{claim.row.key} is as in {self.bench.base}, but {what}")

    def _of_base(self, claim: Claim) -> Statement | None:
        path = claim.among(self._before)
        return self._base_statement.get(path) if path else None

    def changed_uses(self) -> Iterator[Finding]:
        """Uses that the base, which declared otherwise, had records of rows under that these are none of."""
        lost: defaultdict[tuple[str, str], list[Claim]] = defaultdict(list)
        for claim in (claim for row in self.old for claim in self.tree.claims[row]):
            had = self._former(claim)
            if had.use != claim.use and claim.among(self.tree.records) is None and had.among(self._before):
                lost[had.use.id, claim.use.id].append(claim)
        for (former, use), claims in lost.items():
            place = min(each.place for each in self.tree.declarations.of_row(claims[0].row) if each.use.id == use)
            count = "1 row has a record" if len(claims) == 1 else f"{len(claims)} rows have records"
            now = "as it is now" if use == former else f"under `{use}`, as it is now"
            message = f"{count} under `{former}` as {self.bench.base} declared it, and none {now}"
            yield Finding(USE_CHANGED, place, message, claims[0].how_to_verify())


def _renamed(use: Use, other: Use) -> bool:
    return replace(use, deployment=other.deployment, block=other.block) == other


def _is_less(said: Statement, before: Statement | None) -> str:
    """How a record says less than the base's that it takes the place of; empty where it does not."""
    if before is None:
        return ""
    if said.status == EMULATED != before.status:
        return "says emulated, and did not before"
    older = said.record["time"] < before.record["time"]
    return f"is of {said.record['time']}, older than the base's of {before.record['time']}" if older else ""


def _statement(content: bytes) -> Statement | None:
    try:
        return Statement(parse_record(content))
    except RecordError:
        return None


def _edits(before: TunedRow, after: TunedRow) -> str:
    """`block_m 16 → 32`, of each launch field that differs."""
    old, new = before.launch(), after.launch()
    return ", ".join(f"{name} {old[name] or 'none'} → {new[name] or 'none'}" for name in new if old[name] != new[name])
