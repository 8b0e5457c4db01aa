"""What a verification is asked to judge: a repository's own rows and declared uses, or the rows of given tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from moeshapes.backends.production.installed import package_folder
from moeshapes.check import check_repository
from moeshapes.findings import Finding
from moeshapes.lint import lint_files, tuned_files
from moeshapes.repository import load_declarations
from moeshapes.root import name_from
from moeshapes.table import read_table, read_tuned_rows
from moeshapes.verify.merged_tables import MergedTables, merged_rows
from moeshapes.verify.plan import Planned, plan
from moeshapes.verify.site import WITHOUT_GPU, Site


def plan_of(root: Path, paths: Sequence[Path], site: Site = WITHOUT_GPU) -> tuple[list[Planned], list[Finding]]:
    """The plan and what is wrong with its sources: everything `check` finds, or what lint says of the given tables.

    Rows that can be read are planned whatever else is wrong: one bad line must not hide what the others compute.
    """
    declarations, wrong = load_declarations(root)
    tables = [read_table(path, name_from(root, path)) for path in paths or tuned_files(root)]
    rows = [row for table in tables for row in read_tuned_rows(table)]
    planned = plan(declarations, rows, with_defaults=not paths, site=site, merged=_merged(root, site))
    findings = [*wrong, *lint_files(paths, root).findings] if paths else check_repository(root).findings
    return planned, list(findings)


def _merged(root: Path, site: Site) -> MergedTables:
    """What AITER would load if this repository's rows were exported to it; nothing where it is not to run."""
    folder = package_folder() if any(gpu.aiter for gpu in site.local.gpus) else None
    return MergedTables(merged_rows(root, folder / "configs")) if folder else MergedTables()
