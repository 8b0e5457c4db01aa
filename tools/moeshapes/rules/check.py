"""Checks: functions that judge one tuned row. To add one, write it under `@check` in a module that `lint` imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from moeshapes.findings import Finding
from moeshapes.kernel_name import KernelName, parse
from moeshapes.policy import Deny
from moeshapes.row import TunedRow
from moeshapes.rule import Rule


@dataclass(frozen=True)
class Subject:
    """A tuned row with its kernel names parsed and the kernels that its shape's policy denies."""

    row: TunedRow
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

    def finding(self, rule: Rule, message: str, remedy: str = "") -> Finding:
        return Finding(rule, self.row.place, message, remedy)


Check = Callable[[Subject], Iterator[Finding]]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    """Registers a check."""
    CHECKS.append(function)
    return function
