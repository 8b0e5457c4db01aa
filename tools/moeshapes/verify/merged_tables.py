"""The tables of the installed AITER with this repository's rows laid over them, and what a lookup finds there."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from moeshapes.dispatch import LARGEST_STEP, TOP
from moeshapes.family import (
    AITER_CONFIGS,
    FALLBACK_TAG,
    OWN_CONFIGS,
    entries_of,
    key_columns,
    merge_order,
    read_family,
)
from moeshapes.overlay import lay_over
from moeshapes.root import name_from
from moeshapes.row import Key, TunedRow, UntunedRow
from moeshapes.runtime.merged import merge
from moeshapes.verify.lookup import Lookup, cells_of, row_line

_ANY = "ActivationType.*"


def merged_rows(root: Path, configs: Path) -> list[TunedRow]:
    """The rows that AITER loads from `configs`, an aiter/configs, where ours are exported into it; in merged order."""
    theirs = read_family(configs, AITER_CONFIGS, os.path.relpath)
    ours = read_family(root / OWN_CONFIGS, OWN_CONFIGS, partial(name_from, root))
    tables = [*theirs.tuned.values(), *ours.tuned.values()]
    overlay = lay_over(theirs, entries_of(ours), key_columns(tables, theirs.shape_columns))
    loaded = {id(table): {row.place.line: row for row in merge([table]).rows} for table in tables}
    found = (loaded[id(entry.table)].get(entry.line.number) for entry in overlay.entries)
    return [row for row in found if row is not None]


class MergedTables:
    """Tuned rows in merged order, by what AITER's lookup compares."""

    def __init__(self, rows: Iterable[TunedRow] = ()) -> None:
        self._rows: dict[tuple[str, int, UntunedRow], list[TunedRow]] = defaultdict(list)
        for row in rows:
            if row.tag != FALLBACK_TAG:
                self._rows[_compared(row.key)].append(row)

    def lookup(self, key: Key, row: TunedRow | None) -> Lookup:
        """What a lookup of `key` may find beside the row that has it."""
        candidates = list(self._candidates(key))
        place = _place_of(key, row, candidates)
        lines = [row_line(cells_of(other.key), other.launch()) for other in candidates]
        own = [other.key == key for other in candidates]
        beside = [(number, line) for number, line in enumerate(lines) if not own[number]]
        return Lookup(
            key=cells_of(key),
            before=tuple(line for number, line in beside if number < place),
            behind=tuple(line for number, line in beside if number >= place),
        )

    def _candidates(self, key: Key) -> Iterator[TunedRow]:
        yield from self._rows.get(_compared(key), ())
        if key.shape.token == TOP:
            yield from self._rows.get(_compared(replace(key, shape=replace(key.shape, token=LARGEST_STEP))), ())


def _compared(key: Key) -> tuple[str, int, UntunedRow]:
    return (key.gfx, key.cu_num, replace(key.shape, act_type=_ANY))


def _place_of(key: Key, row: TunedRow | None, candidates: Sequence[TunedRow]) -> int:
    """Where among the candidates a row of this key stands: in the place of one that has it, else its file's."""
    for number, other in enumerate(candidates):
        if other.key == key:
            return number
    if row is None:
        return len(candidates)
    own = _order(row)
    return sum(_order(other) <= own for other in candidates)


def _order(row: TunedRow) -> tuple[bool, str]:
    """By the file's path below a family's folder."""
    return merge_order(row.place.file.replace(os.sep, "/").rpartition("configs/")[2])
