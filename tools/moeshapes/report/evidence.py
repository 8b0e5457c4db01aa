"""Evidence: the records that are there for a row, attested ones before those of the local cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from moeshapes.claim import Claim
from moeshapes.gate.attestation import Attestations
from moeshapes.gate.tree import records_below
from moeshapes.record import CACHE, MAX_BYTES, RecordError, checked, decode, read_content
from moeshapes.record_name import file_name, file_name_of, is_shipped
from moeshapes.row import TunedRow
from moeshapes.use import Use

Record = Mapping[str, Any]


@dataclass
class Evidence:
    """The records below a repository's root. Attested ones are those that the gate may rely on."""

    root: Path
    _unread: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def unread(self) -> dict[str, str]:
        """Why the files that were met and are not to be relied on are not, by their paths."""
        return {path: fault.message for path, fault in self._attestations.faults.items()} | self._unread

    def of(self, row: TunedRow, use: Use) -> Record | None:
        """The record of a row as it stands under a use as it is declared; None where there is none."""
        return self.attested(row, use) or self._cached.get(file_name(row.key, row.launch(), use))

    def attested_path(self, row: TunedRow, use: Use) -> str:
        """Where a row's attested record stands below the root, or is to; empty for a row that does not ship."""
        claim = Claim(row, use)
        return (claim.among(self._paths) or claim.path) if is_shipped(row.place.file) else ""

    def attested(self, row: TunedRow, use: Use) -> Record | None:
        """The committed record alone."""
        path = Claim(row, use).among(self._paths) if is_shipped(row.place.file) else None
        said = self._attestations.at(path) if path else None
        return said.record if said else None

    @cached_property
    def _attestations(self) -> Attestations:
        return Attestations(self.root)

    @cached_property
    def _paths(self) -> Mapping[str, list[str]]:
        return records_below(self.root)

    @cached_property
    def _cached(self) -> Mapping[str, Record]:
        """The newest record of each name."""
        found: dict[str, Record] = {}
        for record in self._all_cached():
            name = file_name_of(record)
            if name not in found or found[name]["time"] < record["time"]:
                found[name] = record
        return found

    def _all_cached(self) -> Iterator[Record]:
        for path in sorted((self.root / CACHE).glob("*.json")):
            try:
                found = decode(read_content(path, MAX_BYTES))
                # Most are of default plans, and to check a record takes far longer than to decode it.
                if not _is_of_default_plan(found):
                    yield checked(found)
            except RecordError as error:
                self._unread[path.relative_to(self.root).as_posix()] = str(error)


def _is_of_default_plan(decoded: Any) -> bool:
    return isinstance(decoded, dict) and "launch" in decoded and decoded["launch"] is None
