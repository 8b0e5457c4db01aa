"""Runs every check over tuned rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moeshapes.findings import Finding
from moeshapes.policy import Deny
from moeshapes.row import Key, TunedRow
from moeshapes.rules import kernels as kernels  # registers its checks, as every module of rules does
from moeshapes.rules import policies as policies
from moeshapes.rules.check import CHECKS, Subject


def _no_policy(key: Key) -> tuple[Deny, ...]:
    return ()


def lint_rows(rows: Iterable[TunedRow], policy_of: Callable[[Key], tuple[Deny, ...]] = _no_policy) -> list[Finding]:
    """Everything that the rules find. `policy_of` says what a declared shape denies: `Declarations.policy_of`."""
    subjects = (Subject(row, policy_of(row.key)) for row in rows)
    return [finding for subject in subjects for check in CHECKS for finding in check(subject)]
