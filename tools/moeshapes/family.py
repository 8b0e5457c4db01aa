"""Families: the tuned tables that AITER merges into one, and their rows by the key that its merge compares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from math import inf, isnan
from operator import itemgetter
from pathlib import Path

from moeshapes.findings import Finding, Place
from moeshapes.line_fault import CRLF
from moeshapes.root import name_from
from moeshapes.row import UNTUNED_COLUMNS
from moeshapes.rule import Severity
from moeshapes.table import BYTE_ORDER_MARK, Kind, Line, Table, canonical_cell, read_table

OWN_CONFIGS, AITER_CONFIGS, TRITON = "generated/aiter/configs", "aiter/configs", "generated/triton"
FOLDERS = (OWN_CONFIGS, AITER_CONFIGS, TRITON)
"""A family each, below the root of a repository of shapes or of an AITER checkout."""
OF_MODELS = "model_configs"
"""Where tables of single models stand below the folder of a family that has some."""
GENERAL, GENERAL_UNTUNED = "tuned_fmoe.csv", "untuned_fmoe.csv"

NOT_LOOKED_AT = ("act_type", "_tag")
"""Columns that keep rows apart in the merge and not at lookup (contract 3.3)."""
FALLBACK_TAG = "flydsl_fallback"
"""The tag of rows that AITER drops when it loads the merged table."""

HERE = ""
"""The working tree, where trees have names."""
_HERE_ALONE = frozenset({HERE})
_FILLED_WITH_ZERO = "0"
_HARMLESS_TO_KEYS = frozenset({CRLF, BYTE_ORDER_MARK})
RowKey = tuple[str, ...]


@dataclass(frozen=True)
class Family:
    """The tables of a folder, tuned and untuned, by their paths below it, in the order in which AITER merges them."""

    tables: Mapping[str, Table]

    @property
    def tuned(self) -> dict[str, Table]:
        return {file: table for file, table in self.tables.items() if table.kind is Kind.TUNED}

    @property
    def shape_columns(self) -> tuple[str, ...]:
        """The columns of the general untuned table, the first part of AITER's key."""
        general = self.tables.get(GENERAL_UNTUNED)
        return general.header if general and general.header else UNTUNED_COLUMNS


@dataclass(frozen=True, slots=True)
class Entry:
    """A tuned row of a family. `file` is its table's path below the family's folder.

    `tree` is the branch whose file the row is shown in; `origins` are all the trees that have this very row, None for a
    row of an AITER checkout, which lies beneath all of them.
    """

    file: str
    table: Table
    line: Line
    tree: str = HERE
    origins: frozenset[str] | None = _HERE_ALONE

    @property
    def place(self) -> Place:
        return in_tree(self.tree, self.table.place(self.line))

    def cell(self, column: str) -> str:
        return self.table.cell(self.line, column)

    def canonical(self, column: str) -> str | None:
        return canonical_cell(self.table, self.line, column)

    @property
    def us(self) -> float:
        """The time as pandas orders it: what is no number comes last."""
        try:
            us = float(self.cell("us"))
        except ValueError:
            return inf
        return inf if isnan(us) else us

    @property
    def kernels(self) -> str:
        names = (self.canonical("kernelName1"), self.canonical("kernelName2"))
        return " + ".join(name for name in names if name) or "no kernel"

    def __str__(self) -> str:
        return f"{self.place} ({self.us:g} µs, {self.kernels})"


def in_tree(tree: str, place: Place) -> Place:
    """A place in a tree's file: as git names files of branches, where it is not the working tree."""
    return Place(f"{tree}:{place.file}", place.line, place.column) if tree else place


def is_member(folder: str, file: str) -> bool:
    """Whether a file at that path below the folder belongs to the folder's family."""
    if folder == TRITON:
        return fnmatchcase(file.rpartition("/")[2], "*tuned_fmoe*.csv")
    in_models, _, name = file.rpartition("/")
    return file in (GENERAL, GENERAL_UNTUNED) or (in_models == OF_MODELS and fnmatchcase(name, "*tuned_fmoe*.csv"))


def merge_order(file: str) -> tuple[bool, str]:
    """The general table first. AITER takes the others as the file system lists them; here they go by name."""
    return (file != GENERAL, file)


def read_family(folder: Path, kind: str, shown: Callable[[Path], str]) -> Family:
    """Reads the family of a folder, of the kind of one of FOLDERS; `shown` says what findings call a file."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*tuned_fmoe*.csv")}
    files = sorted((file for file in paths if is_member(kind, file)), key=merge_order)
    return Family({file: read_table(paths[file], shown(paths[file])) for file in files})


def read_families(root: Path) -> dict[str, Family]:
    """Every family of a repository of shapes or of an AITER checkout, by folder."""
    return {folder: read_family(root / folder, folder, partial(name_from, root)) for folder in FOLDERS}


def entries_of(family: Family, origins: frozenset[str] | None = _HERE_ALONE) -> Iterator[Entry]:
    """The tuned rows in merged order, those included whose key cannot be read."""
    for file, table in family.tuned.items():
        for line in table.lines:
            if line.cells is not None:
                yield Entry(file, table, line, origins=origins)


def uncompared(table: Table) -> Iterator[Finding]:
    """What keeps rows of a table from being compared: a broken file, or a row whose key cannot be read."""
    columns = ("gfx", "cu_num", *UNTUNED_COLUMNS) if table.kind is Kind.TUNED else UNTUNED_COLUMNS
    read = key_reader(table, columns)
    errors = [finding for finding in table.findings if finding.rule.severity is Severity.ERROR]
    suspects = {finding.place.line for finding in errors}
    unread = {line.number for line in table.lines if line.number in suspects and read(line) is None}
    for finding in errors:
        about_file = finding.place.line <= 1 and finding.rule not in _HARMLESS_TO_KEYS
        if about_file or finding.place.line in unread:
            yield finding


def key_columns(tables: Iterable[Table], shape_columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that AITER's merge compares: what is in no table cannot be compared."""
    present = {"gfx"}.union(*(table.header for table in tables))
    return tuple(column for column in dict.fromkeys((*shape_columns, "cu_num", "gfx", "_tag")) if column in present)


def key_reader(table: Table, columns: Sequence[str]) -> Callable[[Line], RowKey | None]:
    """A function that gives a row's cells of these columns in AITER's spelling, None where one cannot be read."""
    positions = [table.index[column] for column in columns if column in table.index]
    pick = itemgetter(*positions) if len(positions) == len(columns) > 1 else None

    def read(line: Line) -> RowKey | None:
        if line.cells is None:
            return None
        if pick and line.exact:
            key: RowKey = pick(line.cells)
            return key
        cells = [_key_cell(table, line, column) for column in columns]
        readable = tuple(cell for cell in cells if cell is not None)
        return readable if len(readable) == len(cells) else None

    return read


def _key_cell(table: Table, line: Line, column: str) -> str | None:
    if column not in table.index and column != "gfx":
        return _FILLED_WITH_ZERO
    return canonical_cell(table, line, column)


class Keys:
    """The keys of a family's rows, by the columns that AITER's merge compares."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._readers: dict[int, tuple[Table, Callable[[Line], RowKey | None]]] = {}

    def of(self, entry: Entry) -> RowKey | None:
        """The row's key, None where a cell of it cannot be read."""
        known = self._readers.get(id(entry.table))
        if known is None:
            # The table is kept beside its reader so that no other one takes its id.
            known = self._readers[id(entry.table)] = (entry.table, key_reader(entry.table, self.columns))
        return known[1](entry.line)


def sharing_a_key(entries: Iterable[Entry], columns: Sequence[str]) -> list[list[Entry]]:
    """The entries that have the same cells of these columns as another, together, each list in the entries' order."""
    keys = Keys(columns)
    first: dict[RowKey, Entry] = {}
    later: defaultdict[RowKey, list[Entry]] = defaultdict(list)
    for entry in entries:
        key = keys.of(entry)
        if key is not None and first.setdefault(key, entry) is not entry:
            later[key].append(entry)
    return [[first[key], *others] for key, others in later.items()]
