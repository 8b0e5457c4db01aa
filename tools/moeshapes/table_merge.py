"""Merging: rows of one tuned table into another by key, which keeps all that the first one does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from moeshapes.cell import DEFAULT_OF_ABSENT_COLUMN, KNOWN_COLUMNS
from moeshapes.findings import Finding
from moeshapes.row import GFX_OF_CU_NUM, Key, TunedRow
from moeshapes.rule import Rule, Severity
from moeshapes.table import Line, Table, key_of

WOULD_BE_LOST = Rule(
    "MOE135",
    "would-be-lost",
    Severity.ERROR,
    what="A row has a value in a column that the target table lacks.",
    why="The row would mean something else without it.",
    fix="Add the column to the target table first.",
)

Identity = tuple[Key, str]
"""What a row is known by within a table: its key and its tag."""


@dataclass(frozen=True)
class Change:
    """One row on its way into a target: its line there, and the line it displaces."""

    row: TunedRow
    new: Line
    old: Line | None

    @property
    def is_none(self) -> bool:
        return self.old is not None and self.old.cells == self.new.cells


def identity_of(table: Table, line: Line) -> Identity | None:
    """None where the line's key cannot be read."""
    key = key_of(table, line)
    return (key, table.cell(line, "_tag")) if key else None


def changes_of(target: Table, source: Table, rows: Sequence[TunedRow]) -> tuple[list[Change], list[Finding]]:
    """What `rows` of `source` change in `target`, and the values that would be lost on the way."""
    old = {identity: line for line in target.lines if (identity := identity_of(target, line))}
    lines = {line.number: line for line in source.lines}
    changes: list[Change] = []
    findings: list[Finding] = []
    for row in rows:
        line, displaced = lines[row.place.line], old.get((row.key, row.tag))
        cells = tuple(_carried(target, column, source, line, row, displaced) for column in target.header)
        new = Line(0, (",".join(cells) + "\n").encode(), cells, sound=True)
        changes.append(Change(row, new, displaced))
        findings += _losses(target, source, line, row)
    return changes, findings


def merge(target: Table, changes: Sequence[Change]) -> Table:
    """The target with the changes: displaced lines replaced where they stand, new ones at the end, others untouched."""
    new_lines = {change.old.number: change.new for change in changes if change.old and not change.is_none}
    lines = [new_lines.get(line.number, line) for line in target.lines]
    added = [change.new for change in changes if not change.old]
    if added and lines and not lines[-1].raw.endswith(b"\n"):
        lines[-1] = replace(lines[-1], raw=lines[-1].raw + b"\n")
    return Table(target.name, target.kind, target.header, target.header_raw, (*lines, *added))


def _carried(target: Table, column: str, source: Table, line: Line, row: TunedRow, displaced: Line | None) -> str:
    """A cell for the target. Unknown columns that the source lacks keep the displaced row's value."""
    if column == "gfx":
        return row.key.gfx
    if column in source.index:
        return source.cell(line, column)
    if displaced and column not in KNOWN_COLUMNS:
        return target.cell(displaced, column)
    return DEFAULT_OF_ABSENT_COLUMN.get(column, "")


def _losses(target: Table, source: Table, line: Line, row: TunedRow) -> Iterator[Finding]:
    """Values that have no column in the target and differ from what AITER assumes without one."""
    for column in source.header:
        assumed = DEFAULT_OF_ABSENT_COLUMN.get(column, "")
        if column == "gfx":
            assumed = GFX_OF_CU_NUM.get(row.key.cu_num, "")
        value = source.cell(line, column)
        if column not in target.index and value != assumed:
            yield Finding(WOULD_BE_LOST, row.place, f"`{column}` is `{value}`, and {target.name} has no such column")
