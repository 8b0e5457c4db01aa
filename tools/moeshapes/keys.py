"""Keys: that no two rows of a family have the same one, here, over an AITER checkout, and with other branches merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from moeshapes.collision import Scope, find_collisions
from moeshapes.family import FOLDERS, Family, entries_of, key_columns, key_reader, read_family
from moeshapes.findings import Finding, Place
from moeshapes.line_fault import CRLF
from moeshapes.root import name_from
from moeshapes.row import UNTUNED_COLUMNS
from moeshapes.rule import Rule, Severity
from moeshapes.table import BYTE_ORDER_MARK, Kind, Table

REPEATED_SHAPE = Rule(
    "MOE202",
    "repeated-shape",
    Severity.ERROR,
    what="An untuned table has the same row twice.",
    why="The tuner would measure the shape once and whoever reads the table would count it twice.",
    fix="Remove one of the rows.",
)

_HARMLESS_TO_KEYS = frozenset({CRLF, BYTE_ORDER_MARK})


@dataclass(frozen=True)
class KeysResult:
    """What was found among how many tuned rows of how many tuned tables."""

    findings: tuple[Finding, ...]
    rows: int
    tables: int


def check_keys(root: Path) -> KeysResult:
    """Checks every family of a repository of shapes, or of an AITER checkout, that `root` is the top folder of."""
    families = read_families(root)
    findings = [finding for family in families.values() for finding in (*obstacles(family), *_collisions(family))]
    tuned = [table for family in families.values() for table in family.tuned.values()]
    rows = sum(line.cells is not None for table in tuned for line in table.lines)
    return KeysResult(tuple(findings), rows, len(tuned))


def read_families(root: Path) -> Mapping[str, Family]:
    """The families of a tree by their folders."""
    return {folder: read_family(root / folder, folder, partial(name_from, root)) for folder in FOLDERS}


def _collisions(family: Family) -> Iterator[Finding]:
    columns = key_columns(family.tuned.values(), family.shape_columns)
    return find_collisions(entries_of(family), columns, Scope(fixable=True))


def obstacles(family: Family) -> Iterator[Finding]:
    """What is wrong with single tables of a family: what keeps rows from being compared, untuned rows that repeat."""
    for table in family.tables.values():
        yield from _unread(table)
        if table.kind is Kind.UNTUNED:
            yield from _repeated_shapes(table)


def _unread(table: Table) -> Iterator[Finding]:
    """What kept rows out of this check: a broken file, or a row whose key cannot be read."""
    columns = ("gfx", "cu_num", *UNTUNED_COLUMNS) if table.kind is Kind.TUNED else UNTUNED_COLUMNS
    read = key_reader(table, columns)
    errors = [finding for finding in table.findings if finding.rule.severity is Severity.ERROR]
    suspects = {finding.place.line for finding in errors}
    unread = {line.number for line in table.lines if line.number in suspects and read(line) is None}
    for finding in errors:
        about_file = finding.place.line <= 1 and finding.rule not in _HARMLESS_TO_KEYS
        if about_file or finding.place.line in unread:
            yield finding


def _repeated_shapes(table: Table) -> Iterator[Finding]:
    places: defaultdict[object, list[Place]] = defaultdict(list)
    read = key_reader(table, table.header)
    for line in table.lines:
        key = read(line)
        if key is not None:
            places[key].append(table.place(line))
    for same in places.values():
        for place in same if len(same) > 1 else ():
            others = ", ".join(str(other) for other in same if other != place)
            yield Finding(REPEATED_SHAPE, place, f"the same row as {others}")
