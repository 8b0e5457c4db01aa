"""Selections: which rows of a tuned table are meant, by line number or by what their columns hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from moeshapes.findings import Finding, Place
from moeshapes.row import UNTUNED_COLUMNS, TunedRow
from moeshapes.rule import Rule, Severity
from moeshapes.spelling import nearest
from moeshapes.table import Table, read_tuned_rows

BAD_SELECTOR = Rule(
    "MOE131",
    "bad-selector",
    Severity.ERROR,
    what="A selector of rows is malformed or selects nothing.",
    why="What was meant to be taken would silently be left out.",
    fix="Give a line number of the file, or filters like `token=8,inter_dim=512`.",
)
NOT_READ = Rule(
    "MOE132",
    "row-not-read",
    Severity.ERROR,
    what="A selected line is no row that can be read.",
    why="Its values cannot be trusted to stand under the right columns.",
    fix="Correct the line first.",
)
_LINE_NUMBER = re.compile(r"[0-9]{1,9}")
_COLUMNS = ("gfx", *UNTUNED_COLUMNS, "cu_num", "_tag", "block_m", "kernelName1", "kernelName2")


def select_rows(table: Table, selectors: Sequence[str]) -> tuple[list[TunedRow], list[Finding]]:
    """The rows that any selector selects, in the file's order, and what is in the way. Without selectors, all."""
    rows = read_tuned_rows(table)
    if not selectors:
        return rows, [finding for finding in table.findings if finding.rule.severity is Severity.ERROR]
    findings: list[Finding] = []
    chosen: set[int] = set()
    for selector in selectors:
        lines, wrong = _lines_of(table, rows, selector)
        chosen |= lines
        findings += wrong
    return [row for row in rows if row.place.line in chosen], findings


def _lines_of(table: Table, rows: Iterable[TunedRow], selector: str) -> tuple[set[int], list[Finding]]:
    if _LINE_NUMBER.fullmatch(selector):
        return _line_of(table, rows, int(selector))
    wanted, problems = filters_of(selector)
    if problems:
        return set(), [_bad(selector, problem) for problem in problems]
    lines = {row.place.line for row in rows if all(holds(row, column, value) for column, value in wanted)}
    return lines, [] if lines else [_bad(selector, f"no row of {table.name} matches")]


def _line_of(table: Table, rows: Iterable[TunedRow], number: int) -> tuple[set[int], list[Finding]]:
    if any(row.place.line == number for row in rows):
        return {number}, []
    if not any(line.number == number for line in table.lines):
        return set(), [_bad(str(number), f"{table.name} has no such line under its header")]
    reasons = [finding for finding in table.findings if finding.place.line == number]
    return set(), reasons or [Finding(NOT_READ, Place(table.name, number), "the line is no row that can be read")]


def filters_of(selector: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The (column, value) pairs of a selector such as `token=8,inter_dim=512`, and what is wrong with them."""
    pairs = [part.partition("=") for part in selector.split(",")]
    return [(column, value) for column, _, value in pairs], list(_problems(pairs))


def _problems(pairs: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    for column, sign, _ in pairs:
        if not sign:
            yield f"`{column}` is neither a line number nor `column=value`"
        elif column not in _COLUMNS:
            close = nearest(column, _COLUMNS)
            yield f"there is no column `{column}`" + (f": did you mean `{close}`?" if close else "")


def holds(row: TunedRow, column: str, value: str) -> bool:
    """Whether the cell is the value, or the value with its enum's or module's name before it: `Silu`, `bfloat16`."""
    cells = {**dict(zip(UNTUNED_COLUMNS, row.key.shape.cells(), strict=True)), **row.launch()}
    cells |= {"gfx": row.key.gfx, "cu_num": row.key.cu_num, "_tag": row.tag}
    cell = str(cells[column])
    return value == cell or value == cell.partition(".")[2] != ""


def _bad(selector: str, problem: str) -> Finding:
    return Finding(BAD_SELECTOR, Place("--rows"), f"`{selector}`: {problem}")
