"""Runs every check over tuned rows."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moeshapes.findings import Finding
from moeshapes.row import TunedRow
from moeshapes.rules.check import CHECKS, TABLE_CHECKS, Subject, Tables
from moeshapes.runtime.version import Version

if TYPE_CHECKING:
    from moeshapes.expand import Declarations

MODULES = (
    "agreement",
    "catalogue",
    "copies",
    "declared",
    "errors",
    "inert",
    "kernels",
    "policies",
    "portable",
    "reachable",
    "refusals",
    "series",
    "since",
    "throughput",
    "tiles",
    "times",
)
"""The modules of rules. Importing one registers its checks."""

for _module in MODULES:
    importlib.import_module(f"moeshapes.rules.{_module}")


def lint_rows(
    rows: Iterable[TunedRow],
    declarations: Declarations | None = None,
    sound: bool = True,
    version: Version | None = None,
) -> list[Finding]:
    """Everything that the rules find in rows that are judged together.

    `declarations` are the repository's. Where they are not `sound`, shapes may be missing from them: no row is then
    said to be undeclared, and no bucket to be missing. `version` is the AITER that serves, by default the newest that
    is known.
    """
    incomplete = declarations is not None and not sound
    tables = Tables(tuple(rows), declarations if sound else None, incomplete)
    by_row = [finding for row in tables.rows for finding in lint_row(row, declarations, version)]
    return by_row + [finding for check in TABLE_CHECKS for finding in check(tables)]


def lint_row(row: TunedRow, declarations: Declarations | None = None, version: Version | None = None) -> list[Finding]:
    """What the rules find in a row by itself, whatever stands beside it."""
    subject = _subject(row, declarations, version or Version())
    return [finding for check in CHECKS for finding in check(subject)]


def _subject(row: TunedRow, declarations: Declarations | None, version: Version) -> Subject:
    if declarations is None:
        return Subject(row, version)
    return Subject(row, version, declarations.uses_of(row), declarations.policy_of(row))
