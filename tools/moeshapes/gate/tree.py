"""The working tree as the gate sees it: its tables, rows, declarations and record files, each read once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from moeshapes.claim import Claim, claims_of, records_by_name
from moeshapes.expand import Declarations
from moeshapes.family import Family, read_families
from moeshapes.findings import Finding, has_errors
from moeshapes.record import RECORDS
from moeshapes.record_name import FILE, is_shipped
from moeshapes.repository import load_declarations
from moeshapes.row import TunedRow
from moeshapes.table import Table, read_tuned_rows


@dataclass(frozen=True)
class WorkingTree:
    """What stands below `root`. `findings` are about the declarations."""

    root: Path
    families: Mapping[str, Family]
    declarations: Declarations
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether all is declared that is meant to be."""
        return not has_errors(self.findings)

    @cached_property
    def rows(self) -> tuple[TunedRow, ...]:
        return tuple(row for table in self._tables for row in read_tuned_rows(table))

    @property
    def _tables(self) -> Iterator[Table]:
        return chain.from_iterable(family.tuned.values() for family in self.families.values())

    @property
    def unread(self) -> int:
        """How many lines of tables that ship are no row that can be read: of what they launch nothing is known."""
        lines = sum(len(table.lines) for table in self._tables if is_shipped(table.name))
        return lines - sum(is_shipped(row.place.file) for row in self.rows)

    @cached_property
    def claims(self) -> Mapping[TunedRow, tuple[Claim, ...]]:
        """What each row claims that ships."""
        claimed = ((row, tuple(claims_of(row, self.declarations))) for row in self.rows)
        return {row: claims for row, claims in claimed if claims}

    @cached_property
    def records(self) -> Mapping[str, list[str]]:
        return records_below(self.root)


def read_tree(root: Path) -> WorkingTree:
    declarations, findings = load_declarations(root)
    return WorkingTree(root, read_families(root), declarations, tuple(findings))


def records_below(root: Path) -> Mapping[str, list[str]]:
    """The paths of what is named as a record, by the files' names."""
    return records_by_name(path for path in record_files(root) if FILE.fullmatch(path.rpartition("/")[2]))


def record_files(root: Path) -> Iterator[str]:
    """All that stands in the folders of records, by paths below the root. Folders that are links are not entered."""
    for directory, folders, files in os.walk(root / RECORDS):
        folders.sort()
        yield from (Path(directory, name).relative_to(root).as_posix() for name in sorted(files))
