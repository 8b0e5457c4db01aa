"""Lint of whole tables: the faults of their text, and what the rules say about each row that can be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from moeshapes.findings import Finding
from moeshapes.policy import Deny
from moeshapes.root import is_shapes_root, name_from
from moeshapes.row import UntunedRow
from moeshapes.rules import lint_rows
from moeshapes.table import read_table, read_tuned_rows

TABLE_FOLDERS = ("generated/aiter/configs", "generated/triton", "aiter/configs")
"""Where tuned tables stand in a repository of shapes, or in an AITER checkout."""


@dataclass(frozen=True)
class LintResult:
    """What was found among how many readable rows of how many tables."""

    findings: tuple[Finding, ...]
    rows: int
    tables: int


def tuned_files(root: Path) -> list[Path]:
    """The tuned fused-MoE tables below `root`, in order."""
    found = (path for folder in TABLE_FOLDERS for path in (root / folder).rglob("*tuned_fmoe*.csv"))
    return sorted(path for path in found if "untuned" not in path.name)


def lint_files(files: Iterable[Path], root: Path | None) -> LintResult:
    """Lints tables. Where `root` declares shapes, their kernel policies count too. Raises OSError."""
    tables = [read_table(path, name_from(root, path)) for path in files]
    rows = [row for table in tables for row in read_tuned_rows(table)]
    faults = [finding for table in tables for finding in table.findings]
    judged = lint_rows(rows, _policies(root) if root and is_shapes_root(root) else None)
    return LintResult((*faults, *judged), len(rows), len(tables))


def _policies(root: Path) -> Mapping[UntunedRow, tuple[Deny, ...]]:
    from moeshapes.repository import (
        load_declarations,
    )  # an AITER checkout declares nothing: lint it without the schemas

    declarations, _ = load_declarations(root)
    return {declared.row: declared.deny for declared in declarations.rows if declared.deny}
