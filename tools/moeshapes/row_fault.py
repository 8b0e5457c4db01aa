"""Rows of tables: too few or too many cells, cells in the wrong place, cells that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moeshapes.cell import BAD_VALUE, KNOWN_COLUMNS, MAY_BE_BLANK, Reading, offset, read_cell
from moeshapes.findings import Finding, Place
from moeshapes.recipe import Format, format_of, torch_dtype
from moeshapes.rule import Rule, Severity
from moeshapes.shift import explain

FIELD_COUNT = Rule(
    "MOE110",
    "field-count",
    Severity.ERROR,
    what="A row has more or fewer cells than the header.",
    why="AITER reads the file with pandas, which stops here or fills cells that were meant otherwise.",
    fix="Restore the row from its source.",
)
MISSING_TRAILING = Rule(
    "MOE111",
    "missing-trailing-cells",
    Severity.WARNING,
    what="A row lacks only trailing cells that may be empty.",
    why="pandas fills them, but a hand edit that drops a comma may as well have dropped a value.",
    fix="Add the missing commas.",
)
SHIFTED = Rule(
    "MOE112",
    "shifted-columns",
    Severity.ERROR,
    what="The values of a row stand under the wrong columns.",
    why="A value was lost or added; every later one is read as something else.",
    fix="Restore the lost value, or remove the added one.",
)
WRONG_FP8 = Rule(
    "MOE122",
    "wrong-fp8-flavour",
    Severity.ERROR,
    what="A row names the fp8 format of another architecture.",
    why="gfx942 has e4m3fnuz and later ones e4m3fn; the runtime asks for its own, so the row is never hit.",
    fix="Write the architecture's own format, if the row was measured there.",
)
UNKNOWN_DEVICE = Rule(
    "MOE123",
    "unknown-device",
    Severity.ERROR,
    what="A table has no gfx column and the architecture does not follow from cu_num.",
    why="AITER would take the architecture of whatever GPU it runs on.",
    fix="Add a gfx column.",
)


def judge_cells(header: Sequence[str], cells: Sequence[str], place: Place) -> tuple[bool, list[Finding]]:
    """Whether every cell of a row can be read where it stands, and what is wrong with the cells."""
    if not any(cells):
        return False, [Finding(BAD_VALUE, place, "every cell is empty", "Remove the line.")]
    lost = len(header) - len(cells)
    faulty = _faulty_cells(header, cells)
    misfit = any(reading.rule is BAD_VALUE for _, reading in faulty)
    only_trailing = lost > 0 and cells[-1] != "" and all(may_be_blank(column) for column in header[-lost:])
    if misfit or (lost and not only_trailing):
        misplaced = _misplaced(header, cells, place, faulty)
        if misplaced or (lost and not only_trailing):
            return False, [misplaced or Finding(FIELD_COUNT, place, _counted(header, cells))]
    findings = [Finding(r.rule, _at(place, cells, i), r.message, r.remedy) for i, r in faulty if r.rule]
    if lost:
        lacking = ", ".join(f"`{column}`" for column in header[-lost:])
        findings.append(
            Finding(MISSING_TRAILING, place, f"{_counted(header, cells)}: the row lacks the trailing {lacking}")
        )
    return all(reading.canonical is not None for _, reading in faulty), findings


def device_faults(gfx: str, cu_num: str, dtypes: Sequence[str], place: Place) -> Iterator[Finding]:
    """What a tuned row's device makes wrong: an architecture that is not known, the other architecture's fp8."""
    if not gfx:
        yield Finding(UNKNOWN_DEVICE, place, f"no known architecture has {cu_num} compute units")
        return
    for dtype in dict.fromkeys(dtypes):
        own = torch_dtype(Format.FP8, gfx)
        if format_of(dtype) is Format.FP8 and dtype != own:
            yield Finding(
                WRONG_FP8,
                place,
                f"`{dtype}` on {gfx}, whose fp8 is `{own}`",
                f"Write `{own}`, if it was measured on {gfx}.",
            )


def may_be_blank(column: str) -> bool:
    return column in MAY_BE_BLANK or column not in KNOWN_COLUMNS


def _faulty_cells(header: Sequence[str], cells: Sequence[str]) -> list[tuple[int, Reading]]:
    """The cells that are wrong where they stand, absent trailing cells taken as empty."""
    padded = [*cells, *[""] * (len(header) - len(cells))]
    readings = ((i, read_cell(column, text)) for i, (column, text) in enumerate(zip(header, padded, strict=False)))
    return [(i, reading) for i, reading in readings if reading.rule]


def _misplaced(
    header: Sequence[str], cells: Sequence[str], place: Place, faulty: Sequence[tuple[int, Reading]]
) -> Finding | None:
    shift = explain(header, cells)
    if shift is None:
        return None
    symptom = f" ({faulty[0][1].message})" if faulty else ""
    return Finding(SHIFTED, place, f"{_counted(header, cells)}, {shift}{symptom}")


def _counted(header: Sequence[str], cells: Sequence[str]) -> str:
    return f"{len(cells)} of {len(header)} cells"


def _at(place: Place, cells: Sequence[str], index: int) -> Place:
    return Place(place.file, place.line, offset(cells, min(index, len(cells) - 1)))
