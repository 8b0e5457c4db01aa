"""Runs every check over tuned rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moeshapes.findings import Finding
from moeshapes.policy import Deny
from moeshapes.row import TunedRow, UntunedRow
from moeshapes.rules import kernels as kernels  # registers its checks, as every module of rules does
from moeshapes.rules import policies as policies
from moeshapes.rules.check import CHECKS, Subject


def lint_rows(rows: Iterable[TunedRow], policies: Mapping[UntunedRow, tuple[Deny, ...]] | None = None) -> list[Finding]:
    """Everything that the rules find. `policies` holds what the declared shapes deny."""
    subjects = (Subject(row, (policies or {}).get(row.key.shape, ())) for row in rows)
    return [finding for subject in subjects for check in CHECKS for finding in check(subject)]
