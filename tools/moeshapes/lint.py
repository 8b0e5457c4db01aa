"""Lint of whole tables: the faults of their text, and what the rules say about each row that can be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from moeshapes.baseline import new_findings, read_baseline
from moeshapes.family import FOLDERS
from moeshapes.findings import Finding, has_errors
from moeshapes.root import is_shapes_root, name_from
from moeshapes.rules import lint_rows
from moeshapes.rules.portable import misplacements
from moeshapes.runtime.version import Version
from moeshapes.table import Table, read_table, read_tuned_rows
from moeshapes.waiver import read_waivers, waive

if TYPE_CHECKING:
    from moeshapes.expand import Declarations


@dataclass(frozen=True)
class LintResult:
    """What was found among how many readable rows of which tables, and how much of it is not shown."""

    findings: tuple[Finding, ...]
    rows: int
    tables: tuple[Table, ...]
    waived: int = 0
    known: int = 0

    @property
    def set_aside(self) -> str:
        """`, 2 waived, 30 in the baseline`; empty where nothing is."""
        counts = ((self.waived, "waived"), (self.known, "in the baseline"))
        return "".join(f", {count} {how}" for count, how in counts if count)


def tuned_files(root: Path) -> list[Path]:
    """The tuned fused-MoE tables below `root`, in order."""
    return [path for folder in FOLDERS for path in tuned_files_in(root / folder)]


def tuned_files_in(folder: Path) -> list[Path]:
    """The tuned fused-MoE tables in a folder and those below it, in order."""
    return sorted(path for path in folder.rglob("*tuned_fmoe*.csv") if "untuned" not in path.name)


def lint_files(
    files: Iterable[Path],
    root: Path | None,
    baseline: Path | None = None,
    today: date | None = None,
    version: Version | None = None,
) -> LintResult:
    """Lints tables. What `root` declares and waives counts too; what the baseline has is not shown. Raises OSError."""
    paths = list(files)
    tables = tuple(read_table(path, name_from(root, path)) for path in paths)
    rows = [row for table in tables for row in read_tuned_rows(table)]
    declarations, are_sound = _declarations(root)
    judged = lint_rows(rows, declarations, are_sound, version)
    found = [*misplacements(tables), *(finding for table in tables for finding in table.findings), *judged]
    waivers, faults = read_waivers(root, today or date.today()) if root else ([], [])
    waived = waive(found, rows, [waiver for waiver in waivers if waiver.is_of_lint])
    unused = waived.unused if root and set(tuned_files(root)) <= set(paths) else []
    known, baseline_faults = read_baseline(baseline) if baseline else ({}, [])
    new = new_findings(waived.findings, tables, known)
    findings = (*new, *faults, *unused, *baseline_faults)
    return LintResult(findings, len(rows), tables, waived.count, len(waived.findings) - len(new))


def _declarations(root: Path | None) -> tuple[Declarations | None, bool]:
    """What `root` declares, and whether that is without errors; an AITER checkout declares nothing."""
    if root is None or not is_shapes_root(root):
        return None, False
    from moeshapes.repository import load_declarations  # AITER's tables are linted without the schemas

    declarations, findings = load_declarations(root)
    return declarations, not has_errors(findings)
