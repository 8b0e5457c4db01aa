"""Profiles: what a tuner timed, a line a kernel as AITER's tuner keeps them, or a line a pair of kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from moeshapes.cell import BAD_TIME, BAD_VALUE, NOT_CANONICAL, offset, read_cell
from moeshapes.findings import Finding, Place
from moeshapes.header_fault import BAD_COLUMNS, column_faults
from moeshapes.line_fault import CRLF
from moeshapes.row import GFX_OF_CU_NUM, UNTUNED_COLUMNS, Key, TunedRow, UntunedRow
from moeshapes.row_fault import FIELD_COUNT
from moeshapes.rule import Rule, Severity
from moeshapes.table import BYTE_ORDER_MARK, Line, Table, read_table, read_tuned_rows

STAGE1, STAGE2, ONE_STAGE, ONE_STAGE_OF_BF16 = STAGES = ("stage1", "stage2", "asm_1stage", "asm_1stage_xbf16")
"""What AITER's tuner calls the parts that a candidate can be (contract 7.3)."""

_KEY_COLUMNS = ("cu_num", *UNTUNED_COLUMNS)
COLUMNS = ("stage", *_KEY_COLUMNS, "block_m", "us", "kernelName", "err")
"""What every profile of kernels has. gfx, ksplit, flat and v2 came with later tuners."""
_NUMBERS = ("ksplit", "flat", "v2")
_READ_AS = {"kernelName": "kernelName1", "err": "err1", "v2": "xbf16"}
"""Columns that may hold what another one of a tuned table may."""
_NO_NUMBER = frozenset({"", "nan", "inf", "-inf"})
_OF_COMMITTED_TABLES = frozenset({CRLF, BYTE_ORDER_MARK, NOT_CANONICAL, BAD_TIME})
"""Rules that a profile need not keep: nobody commits it, pandas writes 0.0 for 0, and failures stay in it."""
_OF_TUNED_TABLES = _OF_COMMITTED_TABLES | {BAD_COLUMNS, BAD_VALUE}
"""Rules by which cells would be judged as a tuned table's, where a line is a kernel."""


@dataclass(frozen=True)
class Timed:
    """A kernel that a tuner timed for a key. `us` in microseconds, of its stage alone (contract 7.4).

    `v2` says whether it was timed with sorted rows between the stages, None where the tuner does not tell.
    """

    key: Key
    stage: str
    block_m: int
    ksplit: int
    us: float
    kernel: str
    err: str
    flat: int
    v2: bool | None
    place: Place


@dataclass(frozen=True)
class Profile:
    """`kernels` are of a file with a line a kernel, `pairs` of one with a line a pair. `useless` were timed in vain."""

    kernels: tuple[Timed, ...] = ()
    pairs: tuple[TunedRow, ...] = ()
    useless: int = 0
    findings: tuple[Finding, ...] = ()


def read_profile(path: Path, name: str) -> Profile:
    """Every candidate that has a time; what is wrong with the others, and with the file, is in the findings.

    Candidates without a time or an error are no fault: the tuner keeps those that failed too.
    """
    table = read_table(path, name)
    if not {"stage", "kernelName"} & set(table.header):
        pairs = tuple(replace(row, tag="") for row in read_tuned_rows(table) if not row.tag)
        return Profile(pairs=pairs, findings=tuple(_errors(table, _OF_COMMITTED_TABLES)))
    wrong = list(column_faults(table.header, COLUMNS, tuned=False, place=Place(name, 1)))
    if wrong:
        return Profile(findings=tuple(wrong))
    findings = list(_errors(table, _OF_TUNED_TABLES))
    known = {found.place.line for found in findings}
    kernels: dict[tuple[object, ...], Timed] = {}
    useless = 0
    for line in table.lines:
        if line.number in known:
            continue
        if line.cells is None or len(line.cells) != len(table.header):
            message = f"{len(line.cells or line.raw.split(b','))} of {len(table.header)} cells"
            findings.append(Finding(FIELD_COUNT, table.place(line), message))
            continue
        timed, faults = _read(table, line)
        findings += faults
        useless += timed is None and not faults
        if timed:  # of one that was timed again, the later time counts: tuners append
            kernels[timed.key, timed.stage, timed.block_m, timed.kernel, timed.ksplit, timed.flat, timed.v2] = timed
    return Profile(tuple(kernels.values()), useless=useless, findings=tuple(findings))


def _errors(table: Table, but: frozenset[Rule]) -> Iterator[Finding]:
    return (found for found in table.findings if found.rule.severity is Severity.ERROR and found.rule not in but)


def _read(table: Table, line: Line) -> tuple[Timed | None, list[Finding]]:
    """The candidate, None where it has no time or no error, or cannot be read."""
    cells = _Cells(table, line)
    if cells.is_useless:
        return None, []
    read = cells.read((*(column for column in COLUMNS if column != "stage"), "gfx", *_NUMBERS))
    stage, faults = cells.raw("stage"), cells.faults
    if stage not in STAGES:
        faults.append(cells.fault(BAD_VALUE, "stage", f"`stage` is `{stage[:80]}`, not one of {', '.join(STAGES)}"))
    gfx = read["gfx"] or GFX_OF_CU_NUM.get(int(read["cu_num"] or 0), "")
    if not gfx and not faults:
        faults.append(cells.fault(BAD_VALUE, "cu_num", f"no known architecture has {read['cu_num']} compute units"))
    if faults:
        return None, faults
    v2 = read["v2"]
    return Timed(
        key=Key(gfx, int(read["cu_num"]), UntunedRow.of_cells([read[column] for column in UNTUNED_COLUMNS])),
        stage=stage,
        block_m=int(read["block_m"]),
        ksplit=int(read["ksplit"] or 0),
        us=float(read["us"]),
        kernel=read["kernelName"],
        err=_error(read["err"]),
        flat=int(read["flat"] or 0),
        v2=v2 == "1" if v2 else None,
        place=table.place(line),
    ), []


class _Cells:
    """A line's cells by their columns, and what is wrong with those that were read."""

    def __init__(self, table: Table, line: Line) -> None:
        self._cells: Sequence[str] = line.cells or ()
        self._columns = table.header
        self._place = table.place(line)
        self.faults: list[Finding] = []

    def raw(self, column: str) -> str:
        return self._cells[self._columns.index(column)].strip() if column in self._columns else ""

    @property
    def is_useless(self) -> bool:
        """Whether the time is none, as tuners write of kernels that failed, or the error is."""
        time = self.raw("us").lower()
        if time in _NO_NUMBER or read_cell("us", time).rule is BAD_TIME:
            return True
        return self.raw("err").removesuffix("%").lower() in _NO_NUMBER

    def read(self, columns: Sequence[str]) -> Mapping[str, str]:
        """The cells in AITER's spelling; empty for those that cannot be read, or may be absent and are."""
        return {column: self._read(column) for column in columns}

    def _read(self, column: str) -> str:
        text = self.raw(column)
        if not text and column not in COLUMNS:
            return ""
        known = _READ_AS.get(column, column)
        reading = read_cell(known, text)
        if reading.canonical is None:
            message = reading.message.replace(f"`{known}`", f"`{column}`", 1)
            self.faults.append(self.fault(reading.rule or BAD_VALUE, column, message, reading.remedy))
        return reading.canonical or ""

    def fault(self, rule: Rule, column: str, message: str, remedy: str = "") -> Finding:
        at = offset(self._cells, self._columns.index(column)) if column in self._columns else 1
        return Finding(rule, Place(self._place.file, self._place.line, at), message, remedy)


def _error(text: str) -> str:
    """As tuned tables have it: a dump of candidates has the bare fraction."""
    return text if text.endswith("%") else f"{float(text):.1%}"
