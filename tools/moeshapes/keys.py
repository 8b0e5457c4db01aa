"""Keys: that no two rows of a family have the same one, as AITER's merge derives keys (contract 1.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isnan
from pathlib import Path

from moeshapes.findings import Finding, Place
from moeshapes.line_fault import CRLF
from moeshapes.row import UNTUNED_COLUMNS
from moeshapes.rule import Rule, Severity
from moeshapes.table import BYTE_ORDER_MARK, Kind, Line, Table, canonical_cell, key_of, read_table

COLLISION = Rule(
    "MOE201",
    "collision",
    Severity.ERROR,
    what="Two tuned rows of a family have the same key.",
    why="AITER's merge keeps the row with the lowest us, rewrites the source files on disk and raises.",
    fix="Keep one of the rows; where both files need the shape, keep the row in one of them.",
)
REPEATED_SHAPE = Rule(
    "MOE202",
    "repeated-shape",
    Severity.ERROR,
    what="An untuned table has the same row twice.",
    why="The tuner would measure the shape once and whoever reads the table would count it twice.",
    fix="Remove one of the rows.",
)

_FILLED_WITH_ZERO = "0"
_SHOWN = 3
_HARMLESS_TO_KEYS = frozenset({CRLF, BYTE_ORDER_MARK})


@dataclass(frozen=True)
class KeysResult:
    """What was found among how many tuned rows of how many tuned tables."""

    findings: tuple[Finding, ...]
    rows: int
    tables: int


@dataclass(frozen=True)
class _Entry:
    """A tuned row as the merge sees it. `cells` is its key as written; `us` is infinite where it is no number."""

    place: Place
    key: str
    cells: dict[str, str]
    us: float
    kernels: str

    def __str__(self) -> str:
        return f"{self.place} ({self.us:g} µs, {self.kernels})"


def check_keys(root: Path) -> KeysResult:
    """Checks every family of a repository of shapes, or of an AITER checkout, that `root` is the top folder of."""
    families = [tables for tables in _families(root) if tables]
    findings = [finding for tables in families for finding in _family_findings(tables)]
    tuned = [table for tables in families for table in tables if table.kind is Kind.TUNED]
    rows = sum(line.cells is not None for table in tuned for line in table.lines)
    return KeysResult(tuple(findings), rows, len(tuned))


def _families(root: Path) -> Iterator[list[Table]]:
    for configs in (root / "generated" / "aiter" / "configs", root / "aiter" / "configs"):
        paths = [
            configs / "tuned_fmoe.csv",
            configs / "untuned_fmoe.csv",
            *configs.glob("model_configs/*tuned_fmoe*.csv"),
        ]
        yield _read_all(root, paths)
    yield _read_all(root, (root / "generated" / "triton").rglob("*tuned_fmoe*.csv"))


def _read_all(root: Path, paths: Iterable[Path]) -> list[Table]:
    return [read_table(path, path.relative_to(root).as_posix()) for path in sorted(paths) if path.is_file()]


def _family_findings(tables: Sequence[Table]) -> Iterator[Finding]:
    for table in tables:
        yield from _obstacles(table)
        if table.kind is Kind.UNTUNED:
            yield from _repeated_shapes(table)
    sibling = next((table for table in tables if table.name.endswith("/untuned_fmoe.csv") and table.header), None)
    shape_columns = sibling.header if sibling else UNTUNED_COLUMNS
    yield from find_collisions([table for table in tables if table.kind is Kind.TUNED], shape_columns)


def find_collisions(tables: Sequence[Table], shape_columns: Sequence[str] = UNTUNED_COLUMNS) -> list[Finding]:
    """A finding at every tuned row whose key another row has. The tables are one family.

    `shape_columns` are the columns of the family's general untuned table, the first part of AITER's key.
    """
    present = {column for table in tables for column in table.header} | {"gfx"}
    key_columns = [column for column in dict.fromkeys((*shape_columns, "cu_num", "gfx", "_tag")) if column in present]
    entries: defaultdict[tuple[str, ...], list[_Entry]] = defaultdict(list)
    for table in tables:
        for line in table.lines:
            key = _key(table, line, key_columns)
            if key is not None:
                entries[key].append(_entry(table, line, key_columns))
    return [finding for same in entries.values() if len(same) > 1 for finding in _collision(same)]


def _key(table: Table, line: Line, columns: Sequence[str]) -> tuple[str, ...] | None:
    """The row's key in AITER's spelling, None where a cell of it cannot be read."""
    if line.cells is None:
        return None
    cells = [_key_cell(table, line, column) for column in columns]
    readable = tuple(cell for cell in cells if cell is not None)
    return readable if len(readable) == len(cells) else None


def _key_cell(table: Table, line: Line, column: str) -> str | None:
    if column not in table.index and column != "gfx":
        return _FILLED_WITH_ZERO
    return canonical_cell(table, line, column)


def _entry(table: Table, line: Line, key_columns: Sequence[str]) -> _Entry:
    kernels = (canonical_cell(table, line, "kernelName1"), canonical_cell(table, line, "kernelName2"))
    return _Entry(
        place=table.place(line),
        key=str(key_of(table, line)),
        cells={column: table.cell(line, column) for column in key_columns if column in table.index},
        us=_number(table.cell(line, "us")),
        kernels=" + ".join(kernel for kernel in kernels if kernel) or "no kernel",
    )


def _number(text: str) -> float:
    """As pandas would order it: what is no number comes last."""
    try:
        value = float(text)
    except ValueError:
        return inf
    return inf if isnan(value) else value


def _collision(same: Sequence[_Entry]) -> Iterator[Finding]:
    """A finding at each of the rows that share a key."""
    kept = min(same, key=lambda entry: entry.us)
    for entry in same:
        others = [other for other in same if other is not entry]
        listed = ", ".join(map(str, others[:_SHOWN])) + (f" and {len(others) - _SHOWN} more" if others[_SHOWN:] else "")
        keeps = "this row" if entry is kept else f"the row at {kept.place}"
        message = f"{entry.key}: {entry.us:g} µs, {entry.kernels}; the same key has {listed}; AITER would keep {keeps}"
        yield Finding(COLLISION, entry.place, message + _spelling_note(entry, others))


def _spelling_note(entry: _Entry, others: Sequence[_Entry]) -> str:
    """How the keys differ as text. AITER compares exactly, so it would miss the collision and keep both rows."""
    pairs = {
        f"`{text}` and `{other.cells[column]}`"
        for other in others
        for column, text in entry.cells.items()
        if column in other.cells and other.cells[column] != text
    }
    return f" (spelled differently, {', '.join(sorted(pairs))}: an exact comparison misses it)" if pairs else ""


def _obstacles(table: Table) -> Iterator[Finding]:
    """What kept rows out of this check: a broken file, or a row whose key cannot be read."""
    columns = ("gfx", "cu_num", *UNTUNED_COLUMNS) if table.kind is Kind.TUNED else UNTUNED_COLUMNS
    errors = [finding for finding in table.findings if finding.rule.severity is Severity.ERROR]
    suspects = {finding.place.line for finding in errors}
    unread = {line.number for line in table.lines if line.number in suspects and _key(table, line, columns) is None}
    for finding in errors:
        about_file = finding.place.line <= 1 and finding.rule not in _HARMLESS_TO_KEYS
        if about_file or finding.place.line in unread:
            yield finding


def _repeated_shapes(table: Table) -> Iterator[Finding]:
    places: defaultdict[tuple[str, ...], list[Place]] = defaultdict(list)
    for line in table.lines:
        key = _key(table, line, table.header)
        if key is not None:
            places[key].append(table.place(line))
    for same in places.values():
        for place in same if len(same) > 1 else ():
            others = ", ".join(str(other) for other in same if other != place)
            yield Finding(REPEATED_SHAPE, place, f"the same row as {others}")
