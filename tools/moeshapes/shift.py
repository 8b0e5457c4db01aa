"""Shifted rows: whether the cells of a faulty row would all be right if one of them had not been lost or added."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moeshapes.cell import BAD_TIME, read_cell

_MOST_LOST = 3


def explain(columns: Sequence[str], cells: Sequence[str]) -> str | None:
    """Which columns a lost or added value stands among, in words; None where no shift makes the row right."""
    lost = len(columns) - len(cells)
    if 0 < lost <= _MOST_LOST:
        return _say("a value is missing", columns, _lost_at(columns, cells, lost))
    if lost == 0:
        return _say("a later cell is empty, a value is missing", columns, _moved_from(columns, cells))
    if lost == -1:
        surplus = [i for i in range(len(cells)) if _fits(columns, [*cells[:i], *cells[i + 1 :]], ())]
        return _say("a value is added", columns, [min(i, len(columns) - 1) for i in surplus])
    return None


def _lost_at(columns: Sequence[str], cells: Sequence[str], lost: int) -> list[int]:
    """Where `lost` neighbouring cells may be missing."""
    return [
        i for i in range(len(cells) + 1) if _fits(columns, [*cells[:i], *[""] * lost, *cells[i:]], range(i, i + lost))
    ]


def _moved_from(columns: Sequence[str], cells: Sequence[str]) -> list[int]:
    """Where a cell may be missing, given that an empty cell further on makes up for it."""
    found = set()
    for blank in (i for i, cell in enumerate(cells) if not cell):
        without = [*cells[:blank], *cells[blank + 1 :]]
        found |= {i for i in range(blank) if _fits(columns, [*without[:i], "", *without[i:]], (i,))}
    return sorted(found)


def _fits(columns: Sequence[str], cells: Sequence[str], unknown: Iterable[int]) -> bool:
    """Whether every cell is legal in its column. A tag that is a number is not believed: it slid there."""
    skipped = frozenset(unknown)
    return all(
        i in skipped or _believable(column, cell) for i, (column, cell) in enumerate(zip(columns, cells, strict=True))
    )


def _believable(column: str, cell: str) -> bool:
    if column == "_tag":
        return read_cell("bw", cell).canonical is None or not cell
    reading = read_cell(column, cell)
    return reading.canonical is not None or reading.rule is BAD_TIME


def _say(what: str, columns: Sequence[str], positions: Sequence[int]) -> str | None:
    if not positions:
        return None
    names = [f"`{columns[i]}`" for i in dict.fromkeys(min(i, len(columns) - 1) for i in positions)]
    return f"{what} at {names[0]}" if len(names) == 1 else f"{what} among {', '.join(names)}"
