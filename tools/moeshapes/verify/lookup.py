"""What AITER's lookup of a job's key finds beside its row: plain lines, so that a worker needs no table to be there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moeshapes.row import LAUNCH_COLUMNS, UNTUNED_COLUMNS, Key

KEY_COLUMNS = ("gfx", "cu_num", *UNTUNED_COLUMNS)
_NOT_LOOKED_AT = {"us1": "1", "err1": "0", "us2": "0", "err2": "0", "us": "1", "tflops": "0", "bw": "0"}
COLUMNS = (*KEY_COLUMNS, *LAUNCH_COLUMNS, *_NOT_LOOKED_AT)
"""All columns of AITER's tuned tables (contract 2.1) but the tag, so that its loader has nothing to fill in.

It goes by names. A tag that no row has would be a column of numbers, which newer pandas refuses to compare with text.
"""


@dataclass(frozen=True)
class Lookup:
    """The merged tables' rows that a lookup of `key` may find, without the row that has this very key.

    `key` has the cells of KEY_COLUMNS, none where nothing is looked up. `before` and `behind` are lines of a table of
    COLUMNS, in merged order around the row's own place: rows that differ in act_type alone, which AITER's lookup does
    not look at, and those of the smaller tier that it falls back to. Other rows cannot change what is found.
    """

    key: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()

    def alone(self, launch: Mapping[str, Any]) -> str:
        """The table of one row, that of these launch fields."""
        return _table([row_line(self.key, launch)])

    def merged(self, launch: Mapping[str, Any] | None) -> str:
        """The merged table with a row of these launch fields in its place; without one for None."""
        return _table([*self.before, *([row_line(self.key, launch)] if launch else []), *self.behind])


NO_LOOKUP = Lookup()


def cells_of(key: Key) -> tuple[str, ...]:
    """A key's cells by KEY_COLUMNS."""
    return (key.gfx, str(key.cu_num), *key.shape.cells())


def row_line(key: tuple[str, ...], launch: Mapping[str, Any]) -> str:
    """A line of a table of COLUMNS. Raises ValueError for a key that has not the cells of KEY_COLUMNS."""
    if len(key) != len(KEY_COLUMNS):
        raise ValueError(f"{len(key)} cells are no key: {', '.join(KEY_COLUMNS)}")
    return ",".join([*key, *(str(launch[column]) for column in LAUNCH_COLUMNS), *_NOT_LOOKED_AT.values()])


def _table(lines: list[str]) -> str:
    return "\n".join([",".join(COLUMNS), *lines, ""])
