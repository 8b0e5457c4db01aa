"""Tables: AITER's fused-MoE CSV files, read without losing a byte, and every fault of their text and cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from stat import S_ISFIFO, S_ISREG

from moeshapes.cell import CORE_COLUMNS, DEFAULT_OF_ABSENT_COLUMN, Sieve, read_cell, sieve_of
from moeshapes.findings import Finding, Place
from moeshapes.header_fault import column_faults
from moeshapes.line_fault import TOO_LARGE, foreign_line, line_end_faults, text_fault
from moeshapes.row import GFX_OF_CU_NUM, UNTUNED_COLUMNS, Key, TunedRow, UntunedRow
from moeshapes.row_fault import device_faults, judge_cells
from moeshapes.rule import Rule, Severity

EMPTY_FILE = Rule(
    "MOE101",
    "empty-file",
    Severity.ERROR,
    what="A table has no header.",
    why="pandas refuses the file, and with it AITER refuses the whole family.",
    fix="Write the header, or remove the file.",
)
BYTE_ORDER_MARK = Rule(
    "MOE103",
    "byte-order-mark",
    Severity.ERROR,
    what="A file begins with a byte order mark.",
    why="Tools other than pandas take it as part of the first column's name.",
    fix="Save the file as UTF-8 without BOM.",
)
NOT_A_FILE = Rule(
    "MOE106",
    "not-a-file",
    Severity.ERROR,
    what="A table is a folder, a device or a broken link, or may not be read.",
    why="Its rows cannot be judged, and AITER stops where it tries to read them.",
    fix="Put the table itself in its place, or remove it.",
)
OTHER_FAMILY = Rule(
    "MOE109",
    "other-family",
    Severity.INFO,
    what="A table belongs to a family whose rows are not judged.",
    why="Grouped and FHMoE tables have other columns.",
    fix="Nothing to do.",
)

MAX_BYTES = 64 << 20
MAX_LINES = 100_000
MAX_COLUMNS = 256
_DEVICE_COLUMNS = ("gfx", "cu_num", "q_dtype_a", "q_dtype_w")
_BOM = b"\xef\xbb\xbf"


class Kind(str, Enum):
    """What a table's rows are. OTHER tables (grouped, FHMoE) are kept byte for byte; their rows are not read."""

    TUNED = "tuned"
    UNTUNED = "untuned"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Line:
    """A line under the header. `cells` is None where the line is no row; `sound` says that every cell can be read.

    `exact` says that every cell is known to be spelled as AITER spells it, so that none needs reading again.
    """

    number: int
    raw: bytes
    cells: tuple[str, ...] | None = None
    sound: bool = False
    exact: bool = False

    def render(self) -> bytes:
        if self.cells is None:
            return self.raw
        return ",".join(self.cells).encode() + self.raw[len(self.raw.rstrip(b"\r\n")) :]


@dataclass(frozen=True)
class Table:
    """A table as read. `name` is how findings call the file."""

    name: str
    kind: Kind
    header: tuple[str, ...]
    header_raw: bytes
    lines: tuple[Line, ...]
    findings: tuple[Finding, ...] = field(default=(), repr=False)

    def render(self) -> bytes:
        """The file's bytes. Those that were read, as long as no line was replaced."""
        return b"".join([self.header_raw, *(line.render() for line in self.lines)])

    @cached_property
    def index(self) -> dict[str, int]:
        return {column: i for i, column in enumerate(self.header)}

    def cell(self, line: Line, column: str) -> str:
        """The cell as written; empty where the line is too short; the default where the table lacks the column."""
        position = self.index.get(column)
        if position is None:
            return DEFAULT_OF_ABSENT_COLUMN.get(column, "")
        cells = line.cells or ()
        return cells[position] if position < len(cells) else ""

    def place(self, line: Line) -> Place:
        return Place(self.name, line.number)


def read_table(path: Path, name: str | None = None) -> Table:
    """Reads a CSV file; what is wrong with it, or that it cannot be read at all, is in the table's findings."""
    shown = name or str(path)
    try:
        mode = path.stat().st_mode
        if not (S_ISREG(mode) or S_ISFIFO(mode)):  # a pipe is what a shell's `<(…)` gives
            return _unread(shown, NOT_A_FILE, "a folder or device, not a file")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        return _unread(shown, NOT_A_FILE, f"cannot be read: {error.strerror}")
    return parse_table(content, shown)


def parse_table(content: bytes, name: str) -> Table:
    """Reads a CSV file's bytes. A file that is too large is kept whole and not read."""
    if len(content) > MAX_BYTES:
        return unread_table(name, f"the file has more than {MAX_BYTES >> 20} MiB", content)
    pieces = content.split(b"\n")
    raws = [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
    if len(raws) > MAX_LINES:
        return unread_table(name, f"the file has more than {MAX_LINES} lines", content)
    if not raws:
        return Table(name, _kind_of(name, ()), (), b"", (), (Finding(EMPTY_FILE, Place(name), "the file is empty"),))
    header, header_findings = _read_header(raws[0], name)
    return _read_lines(name, header, header_findings, raws)


def unread_table(name: str, message: str, content: bytes = b"") -> Table:
    """A table that is too large to be read, and why; its content, if at all, is kept whole."""
    return _unread(name, TOO_LARGE, message, content)


def _unread(name: str, rule: Rule, message: str, content: bytes = b"") -> Table:
    return Table(name, _kind_of(name, ()), (), content, (), (Finding(rule, Place(name), message),))


def _read_header(raw: bytes, name: str) -> tuple[tuple[str, ...], list[Finding]]:
    """The columns, none where the first line is no header."""
    findings = []
    place = Place(name, 1, 1)
    if raw.startswith(_BOM):
        findings.append(Finding(BYTE_ORDER_MARK, place, "the file begins with a byte order mark"))
        raw = raw[len(_BOM) :]
    fault = text_fault(raw, place)
    if fault:
        return (), [*findings, fault]
    columns = tuple(raw.rstrip(b"\r\n").decode().split(","))
    if len(columns) > MAX_COLUMNS:
        return (), [*findings, Finding(TOO_LARGE, place, f"the header has more than {MAX_COLUMNS} columns")]
    return columns, findings


def _read_lines(name: str, header: tuple[str, ...], header_findings: list[Finding], raws: list[bytes]) -> Table:
    kind = _kind_of(name, header)
    required = {Kind.TUNED: CORE_COLUMNS, Kind.UNTUNED: UNTUNED_COLUMNS, Kind.OTHER: ()}[kind]
    column_findings = list(column_faults(header, required, kind is Kind.TUNED, Place(name, 1))) if header else []
    findings = [*header_findings, *column_findings, *line_end_faults(raws, name)]
    if kind is Kind.OTHER:
        findings.append(Finding(OTHER_FAMILY, Place(name), "rows of grouped and FHMoE tables are not read"))
    form = _Form(name, header, typed=bool(header) and kind is not Kind.OTHER and not column_findings)
    lines = []
    for number, raw in enumerate(raws[1:], 2):
        line = form.exact_line(number, raw)
        if line is None:
            line, line_findings = form.read_line(number, raw)
            findings += line_findings
        lines.append(line)
    table = Table(name, kind, header, raws[0], tuple(lines))
    findings += _device_faults(table)
    return Table(name, kind, header, raws[0], tuple(lines), tuple(findings))


class _Form:
    """How to read the lines of one table. `typed` says that it is known what its columns hold."""

    def __init__(self, name: str, header: tuple[str, ...], typed: bool) -> None:
        self._name, self._header, self._typed = name, header, typed
        self._sieves: list[Sieve] = [sieve_of(column) for column in header] if typed else []

    def exact_line(self, number: int, raw: bytes) -> Line | None:
        """The line if it is a row without a fault, as nearly all are, and is seen to be one at once."""
        if not self._typed or not raw.isascii():
            return None
        cells = raw.decode("ascii").removesuffix("\n").split(",")
        if len(cells) != len(self._header):
            return None
        # A list, not a generator: it is what most of the time of reading a table goes to.
        passed = [sieve(cell) for sieve, cell in zip(self._sieves, cells, strict=True)]
        return Line(number, raw, tuple(cells), sound=True, exact=True) if all(passed) else None

    def read_line(self, number: int, raw: bytes) -> tuple[Line, list[Finding]]:
        """Any line, and what is wrong with it."""
        place = Place(self._name, number, 1)
        fault = text_fault(raw, place) or foreign_line(raw, self._header, place)
        if fault:
            return Line(number, raw), [fault]
        cells = tuple(raw.rstrip(b"\r\n").decode().split(","))
        if not self._typed:
            return Line(number, raw, cells if len(cells) == len(self._header) else None), []
        sound, findings = judge_cells(self._header, cells, place)
        return Line(number, raw, cells if len(cells) <= len(self._header) else None, sound), findings


def _kind_of(name: str, header: Sequence[str]) -> Kind:
    """By the file's name, as AITER does; by its columns where the name does not tell."""
    base = name.replace("\\", "/").rpartition("/")[2]
    if "tuned_fmoe" in base and "untuned" not in base:  # AITER merges it, whatever else the name says
        return Kind.TUNED
    if "fhmoe" in base or "grouped_fmoe" in base:
        return Kind.OTHER
    if "untuned" in base:
        return Kind.UNTUNED
    return Kind.TUNED if "tuned" in base or {"us", "kernelName1", "block_m"} & set(header) else Kind.UNTUNED


def _device_faults(table: Table) -> Iterator[Finding]:
    if table.kind is not Kind.TUNED:
        return
    positions = [table.index[column] for column in _DEVICE_COLUMNS if column in table.index]
    harmless: set[tuple[str, ...]] = set()
    for line in table.lines:
        device = tuple([line.cells[i] for i in positions]) if line.exact and line.cells else ()
        if line.sound and device not in harmless:
            gfx, cu_num, a, w = (canonical_cell(table, line, name) or "" for name in _DEVICE_COLUMNS)
            faults = list(device_faults(gfx, cu_num, (a, w), table.place(line)))
            yield from faults
            if device and not faults:
                harmless.add(device)


def canonical_cell(table: Table, line: Line, column: str) -> str | None:
    """The cell in AITER's spelling, None where it cannot be read; gfx from cu_num where it has no column."""
    if column == "gfx" and "gfx" not in table.index:
        cu_num = canonical_cell(table, line, "cu_num")
        return GFX_OF_CU_NUM.get(int(cu_num)) if cu_num else None
    if line.exact:
        return table.cell(line, column)
    return read_cell(column, table.cell(line, column)).canonical


def shape_of(table: Table, line: Line) -> UntunedRow | None:
    """The shape columns of a row, None where one cannot be read; faults elsewhere do not matter."""
    cells = [cell for column in UNTUNED_COLUMNS if (cell := canonical_cell(table, line, column)) is not None]
    if line.cells is None or len(cells) < len(UNTUNED_COLUMNS):
        return None
    return UntunedRow.of_cells(cells)


def key_of(table: Table, line: Line) -> Key | None:
    """What AITER looks a tuned row up by, None where a cell of it cannot be read or the device is unknown."""
    shape = shape_of(table, line)
    gfx, cu_num = canonical_cell(table, line, "gfx"), canonical_cell(table, line, "cu_num")
    return Key(gfx, int(cu_num), shape) if shape and gfx and cu_num else None


def read_untuned_rows(table: Table) -> list[UntunedRow]:
    """The rows of an untuned table that can be read, in the file's order."""
    shapes = (shape_of(table, line) for line in table.lines if line.sound)
    return [shape for shape in shapes if shape]


def read_tuned_rows(table: Table) -> list[TunedRow]:
    """The rows of a tuned table that can be read, in the file's order; the others have a finding each."""
    if table.kind is not Kind.TUNED:
        return []
    keyed = ((line, key_of(table, line)) for line in table.lines if line.sound)
    return [_tuned_row(table, line, key) for line, key in keyed if key]


def _tuned_row(table: Table, line: Line, key: Key) -> TunedRow:
    def text(column: str) -> str:
        return canonical_cell(table, line, column) or ""

    return TunedRow(
        key=key,
        tag=text("_tag"),
        block_m=int(text("block_m")),
        ksplit=int(text("ksplit")),
        us1=float(text("us1")),
        kernel1=text("kernelName1"),
        err1=text("err1"),
        us2=float(text("us2")),
        kernel2=text("kernelName2"),
        err2=text("err2"),
        us=float(text("us")),
        run_1stage=text("run_1stage") == "1",
        xbf16=int(text("xbf16")),
        flat=int(text("flat")),
        tflops=text("tflops"),
        bw=text("bw"),
        place=table.place(line),
    )


def render_untuned(rows: Iterable[UntunedRow]) -> bytes:
    """An untuned table as AITER lays it out: twelve columns, LF, a trailing newline; rows in the order given."""
    lines = [",".join(UNTUNED_COLUMNS), *(",".join(row.cells()) for row in rows)]
    return ("\n".join(lines) + "\n").encode()
