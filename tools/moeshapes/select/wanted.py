"""What is asked for of a profile: the device, and what the columns hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moeshapes.findings import Finding, Place
from moeshapes.row import TunedRow
from moeshapes.selection import BAD_SELECTOR, filters_of, holds


@dataclass(frozen=True)
class Wanted:
    """A device, each part None for any, and selectors as `adopt --rows` has them, but for line numbers."""

    gfx: str | None = None
    cu_num: int | None = None
    selectors: tuple[str, ...] = ()

    def has(self, row: TunedRow) -> bool:
        """Whether a row is of the device and any selector selects it. The selectors are free of faults."""
        if self.gfx not in (None, row.key.gfx) or self.cu_num not in (None, row.key.cu_num):
            return False
        return not self.selectors or any(_holds(row, selector) for selector in self.selectors)

    @property
    def faults(self) -> Iterator[Finding]:
        """What is wrong with the selectors."""
        for selector in self.selectors:
            for problem in filters_of(selector)[1]:
                remedy = "Give filters like `token=8,inter_dim=512`."
                yield Finding(BAD_SELECTOR, Place("--rows"), f"`{selector}`: {problem}", remedy)


def _holds(row: TunedRow, selector: str) -> bool:
    return all(holds(row, column, value) for column, value in filters_of(selector)[0])
