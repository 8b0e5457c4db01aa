"""Log lines of AITER's fused_moe: which key a call looked up, and whether it found a row (contract 3.7)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from moeshapes.cell import read_cell
from moeshapes.row import GFX_OF_CU_NUM, UNTUNED_COLUMNS, Key, UntunedRow

MARK = "[fused_moe] using "
"""What every such line holds; others can be passed over without parsing."""

_LINE = re.compile(
    r"\[fused_moe\] using ([12])stage(?: xbf16)? "
    r"((?:(?!\[fused_moe\]).)*?)"  # not past the next one: a line full of them would take the square of its length
    r" ?for \(([^()]{1,2000})\)"
)
_PRINTED = re.compile(
    r"(\w+)/(\d+) token (\d+) (\d+)/(\d+)/(\d+)/(\d+) (\w+) (\w+) (\w+) (\w+) doweight_stage1=([01])", re.ASCII
)
_ENUM = re.compile(r"<(\w+\.\w+): -?\d+>")
_OLD_COLUMNS = ("cu_num", *UNTUNED_COLUMNS)
_NEW_COLUMNS = ("gfx", *_OLD_COLUMNS)


@dataclass(frozen=True)
class Lookup:
    """One lookup as logged: its key, whether no row has it, and whether one kernel was to do both stages."""

    key: Key
    missed: bool
    one_stage: bool


def parse_log_line(text: str) -> Lookup | str | None:
    """The lookup of a log line; what is wrong with its key, as text; None for a line that is about no lookup.

    Lines of older versions lack gfx: it follows from cu_num, as AITER fills it in.
    """
    match = _LINE.search(text)
    if not match:
        return "the line is cut off, or of a form that is not known" if MARK in text else None
    key = parse_key(match[3])
    return key if isinstance(key, str) else Lookup(key, match[2] == "default", match[1] == "1")


def parse_printed_key(text: str) -> Key | str | None:
    """A key as it is printed, whose dtype is bf16 and use_g1u1 1; what is wrong, as text; None if it is not such."""
    match = _PRINTED.fullmatch(text.strip())
    if not match:
        return None
    *numbers, activation, a, w, q_type, doweight_stage1 = match.groups()
    return parse_key(",".join((*numbers, activation, "bf16", a, w, q_type, "1", doweight_stage1)))


def parse_key(text: str) -> Key | str:
    """The key in the tuple of a log line, without its brackets; what is wrong with it, as text."""
    fields = [field.strip().strip("'\"") for field in text.split(",")]
    columns = {len(_OLD_COLUMNS): _OLD_COLUMNS, len(_NEW_COLUMNS): _NEW_COLUMNS}.get(len(fields))
    if columns is None:
        return f"the key has {len(fields)} fields, not {len(_OLD_COLUMNS)} (older versions) or {len(_NEW_COLUMNS)}"
    cells: dict[str, str] = {}
    for column, field in zip(columns, fields, strict=True):
        cell = _cell(column, field)
        if cell is None:
            return f"`{column}` is `{field[:80]}`, which cannot be read"
        cells[column] = cell
    gfx = cells.get("gfx") or GFX_OF_CU_NUM.get(int(cells["cu_num"]))
    if not gfx:
        return f"the key has no gfx, and no known architecture has {cells['cu_num']} compute units"
    return Key(gfx, int(cells["cu_num"]), UntunedRow.of_cells([cells[column] for column in UNTUNED_COLUMNS]))


def _cell(column: str, field: str) -> str | None:
    """A field in the spelling of tables: logs have Python's own of enums and truth values, people shorten dtypes."""
    enum = _ENUM.fullmatch(field)
    text = enum[1] if enum else field
    return read_cell(column, text).canonical or read_cell(column, f"dtypes.{text}").canonical
