"""Evidence: the records that are there for a row, attested ones before those of the local cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from moeshapes.record import MAX_BYTES, RECORDS, RecordError, parse_record, read_content
from moeshapes.record_name import file_name, file_name_of, folder_name, is_shipped
from moeshapes.row import TunedRow
from moeshapes.use import Use

Record = Mapping[str, Any]
CACHE = "build/records"
"""Where `verify` keeps the records that are not committed, below a repository's root."""


def attested_path(row: TunedRow, use: Use) -> str:
    """Where a shipped row's attested record stands below the root; empty for a row of another table."""
    table = row.place.file
    return f"{RECORDS}/{folder_name(table)}/{file_name(row.key, row.launch(), use)}" if is_shipped(table) else ""


@dataclass
class Evidence:
    """The records below a repository's root. `unread` says of files that are no records why, as they are met."""

    root: Path
    unread: dict[str, str] = field(default_factory=dict)

    def of(self, row: TunedRow, use: Use) -> Record | None:
        """The record of a row as it stands under a use as it is declared; None where there is none."""
        return self.attested(row, use) or self._cached.get(file_name(row.key, row.launch(), use))

    def attested(self, row: TunedRow, use: Use) -> Record | None:
        """The committed record alone."""
        path = attested_path(row, use)
        record = self._read(self.root / path) if path else None
        # A record under another's name is evidence of what it says it is of.
        return record if record and file_name_of(record) == path.rpartition("/")[2] else None

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
        records = (self._read(path) for path in sorted((self.root / CACHE).glob("*.json")))
        return (record for record in records if record and record["launch"] is not None)

    def _read(self, path: Path) -> Record | None:
        if not path.exists() and not path.is_symlink():
            return None
        try:
            return parse_record(read_content(path, MAX_BYTES))
        except RecordError as error:
            self.unread[path.relative_to(self.root).as_posix()] = str(error)
            return None
