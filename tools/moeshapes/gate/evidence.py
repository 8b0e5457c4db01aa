"""Evidence: whether the records of a change prove its rows, and what they take back that was proven."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from moeshapes.claim import Claim, claims_of, records_by_name
from moeshapes.expand import Declarations
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

UNPROVEN = Rule(
    "MOE501", "unproven-row", Severity.ERROR,
    what="A new or changed tuned row has no record, made on the GPU that it is for, under one of its uses.",
    why="Tuners draw data without padding, limits and skew: rows that won there returned NaN in production.",
    fix="Verify the row on its GPU and commit the records.",
)  # fmt: skip
EVIDENCE_REMOVED = Rule(
    "MOE510", "evidence-removed", Severity.ERROR,
    what="The record of a row that is still there is gone, or is an emulation now.",
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
        for row, before in self.replaced.items():
            yield from (Claim(before, claim.use) for claim in self.tree.claims.get(row, ()))
        yield from (claim for row in self.old for claim in self.tree.claims[row] if self._is_touched(claim))

    def _is_touched(self, claim: Claim) -> bool:
        return claim.among(self.tree.records) in self.touched

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
        replaced = self.replaced.get(row)
        for claim in claims:
            path = claim.among(self.tree.records)
            said = self.attestations.at(path) if path else None
            if path is None or (said and said.status == EMULATED):
                missing.append(claim)
            elif said:
                before = self._of_base(Claim(replaced, claim.use)) if replaced else None
                yield from of_new_row(claim, said, before, self.bench, replaces=replaced is not None)
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
                before = self._of_base(claim)
                if said.status == EMULATED and before and before.status != EMULATED:
                    yield self._removed(claim, f"its record under `{claim.use.id}` says emulated, and did not before")
                yield from of_old_row(claim, said, before, self.bench)

    def _removed(self, claim: Claim, what: str) -> Finding:
        return Finding(EVIDENCE_REMOVED, claim.row.place, f"{claim.row.key} is as in {self.bench.base}, but {what}")

    def _of_base(self, claim: Claim) -> Statement | None:
        path = claim.among(self._before)
        return self._base_statement.get(path) if path else None

    def changed_uses(self, declared: Declarations) -> Iterator[Finding]:
        """Uses that the base, which declared otherwise, had records of rows under that these are none of."""
        lost: defaultdict[str, list[Claim]] = defaultdict(list)
        for row in self.old:
            before = {claim.use.id: claim for claim in claims_of(row, declared)}
            for claim in self.tree.claims[row]:
                had = before.get(claim.use.id)
                if had and had.use != claim.use and claim.among(self.tree.records) is None and had.among(self._before):
                    lost[claim.use.id].append(claim)
        for use, claims in lost.items():
            place = min(each.place for each in self.tree.declarations.of_row(claims[0].row) if each.use.id == use)
            count = "1 row has a record" if len(claims) == 1 else f"{len(claims)} rows have records"
            message = f"{count} under `{use}` as {self.bench.base} declared it, and none as it is now"
            yield Finding(USE_CHANGED, place, message, claims[0].how_to_verify())


def _statement(content: bytes) -> Statement | None:
    try:
        return Statement(parse_record(content))
    except RecordError:
        return None


def _edits(before: TunedRow, after: TunedRow) -> str:
    """`block_m 16 → 32`, of each launch field that differs."""
    old, new = before.launch(), after.launch()
    return ", ".join(f"{name} {old[name] or 'none'} → {new[name] or 'none'}" for name in new if old[name] != new[name])
