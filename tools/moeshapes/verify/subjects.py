"""What a verification is asked to judge: a repository's own rows and declared uses, or the rows of given tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moeshapes.backends.production.installed import package_folder
from moeshapes.check import check_repository
from moeshapes.findings import Finding, Place
from moeshapes.lint import lint_files, tuned_files
from moeshapes.repository import load_declarations
from moeshapes.root import name_from
from moeshapes.row import TunedRow
from moeshapes.row_diff import rows_since
from moeshapes.table import read_table, read_tuned_rows
from moeshapes.verify.merged_tables import MergedTables, merged_rows
from moeshapes.verify.plan import Planned, plan
from moeshapes.verify.site import WITHOUT_GPU, Site


@dataclass(frozen=True)
class Asked:
    """What to judge: the rows of `paths` or all shipped ones, with `changed` only those that are not at that base.

    `timed` asks for the speed of rows that run on a GPU.
    """

    paths: Sequence[Path] = ()
    changed: str | None = None
    timed: bool = True


EVERYTHING = Asked()


def plan_of(root: Path, asked: Asked = EVERYTHING, site: Site = WITHOUT_GPU) -> tuple[list[Planned], list[Finding]]:
    """The plan and what is wrong with its sources: everything `check` finds, or what lint says of the given tables.

    Rows that can be read are planned whatever else is wrong: one bad line must not hide what the others compute.
    Raises GitError where what changed cannot be told.
    """
    declarations, wrong = load_declarations(root)
    rows, replaced = _rows(root, asked)
    planned = plan(
        declarations,
        rows,
        with_defaults=not asked.paths and asked.changed is None,
        site=site,
        merged=merged_tables(root, site),
        timed=asked.timed,
        replaced=replaced,
    )
    findings = [*wrong, *lint_files(asked.paths, root).findings] if asked.paths else check_repository(root).findings
    return planned, list(findings)


def _rows(root: Path, asked: Asked) -> tuple[list[TunedRow], dict[Place, dict[str, Any]]]:
    """The rows, and by a row's place the launch fields that it took the place of."""
    if asked.changed is None:
        return (_read(root, asked.paths) if asked.paths else shipped_rows(root)), {}
    diff = rows_since(root, asked.changed)
    files = {name_from(root, path) for path in asked.paths}
    rows = [row for row in diff.to_prove if not files or row.place.file in files]
    return rows, {change.after.place: change.before.launch() for change in diff.changed}


def merged_tables(root: Path, site: Site) -> MergedTables:
    """What AITER would load if this repository's rows were exported to it; nothing where it is not to run."""
    folder = package_folder() if any(gpu.aiter for gpu in site.local.gpus) else None
    return MergedTables(merged_rows(root, folder / "configs")) if folder else MergedTables()


def shipped_rows(root: Path) -> list[TunedRow]:
    """The rows of the repository's own tuned tables that can be read."""
    return _read(root, tuned_files(root))


def _read(root: Path, paths: Sequence[Path]) -> list[TunedRow]:
    tables = [read_table(path, name_from(root, path)) for path in paths]
    return [row for table in tables for row in read_tuned_rows(table)]
