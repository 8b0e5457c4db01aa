"""Checks: functions that judge tuned rows, one at a time or in their series.

To add one, write it under `@check` or `@check_tables` in a module that `lint` imports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from moeshapes.findings import Finding
from moeshapes.kernel_name import KernelName, parse
from moeshapes.policy import Deny
from moeshapes.recipe import Recipe, recipe_of
from moeshapes.row import Key, TunedRow
from moeshapes.rule import Rule
from moeshapes.runtime.version import Version
from moeshapes.use import Use

if TYPE_CHECKING:
    from moeshapes.expand import Declarations

FALLBACK_TAG = "flydsl_fallback"
"""Rows with this tag are dropped when AITER loads a table (contract 2.3)."""


@dataclass(frozen=True)
class Subject:
    """A tuned row with its kernel names parsed, the AITER that serves it, and what the shapes say of its key."""

    row: TunedRow
    version: Version
    uses: tuple[Use, ...] = ()
    denies: tuple[Deny, ...] = ()

    @cached_property
    def kernels(self) -> tuple[tuple[int, str, KernelName | None], ...]:
        """(1 or 2 for kernelName1 or kernelName2, the name, its fields where the grammar covers it); no empty names."""
        named = ((1, self.row.kernel1), (2, self.row.kernel2))
        return tuple((column, name, parse(name)) for column, name in named if name)

    @property
    def parsed(self) -> Iterator[tuple[int, KernelName]]:
        """The kernels whose names the grammar covers, with the stage column that they stand in."""
        return ((column, kernel) for column, _, kernel in self.kernels if kernel)

    @cached_property
    def recipe(self) -> Recipe | None:
        shape = self.row.key.shape
        return recipe_of(shape.q_dtype_a, shape.q_dtype_w, shape.q_type)

    def finding(self, rule: Rule, message: str, remedy: str = "") -> Finding:
        return Finding(rule, self.row.place, message, remedy)


@dataclass(frozen=True)
class Tables:
    """All rows that are judged together, in the order read, and what the repository declares, if anything.

    `incomplete` says that some of what it declares cannot be read.
    """

    rows: tuple[TunedRow, ...]
    declarations: Declarations | None = None
    incomplete: bool = False

    @cached_property
    def series(self) -> Mapping[tuple[Key, bool], tuple[TunedRow, ...]]:
        """The rows that are loaded, by key with token 0 and by backend, each with its tokens ascending."""
        series: dict[tuple[Key, bool], list[TunedRow]] = defaultdict(list)
        for row in self.rows:
            if row.tag != FALLBACK_TAG:
                series[without_token(row.key), row.is_portable].append(row)
        return {key: tuple(sorted(rows, key=lambda row: row.key.shape.token)) for key, rows in series.items()}


def without_token(key: Key) -> Key:
    """The key with token 0: what the buckets of one shape share."""
    return replace(key, shape=replace(key.shape, token=0))


Check = Callable[[Subject], Iterator[Finding]]
TableCheck = Callable[[Tables], Iterator[Finding]]
CHECKS: list[Check] = []
TABLE_CHECKS: list[TableCheck] = []


def check(function: Check) -> Check:
    """Registers a check of one row."""
    CHECKS.append(function)
    return function


def check_tables(function: TableCheck) -> TableCheck:
    """Registers a check of rows in their series."""
    TABLE_CHECKS.append(function)
    return function
