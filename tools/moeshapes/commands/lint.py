"""`moeshapes lint`: static rules on tuned rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from moeshapes.baseline import write_baseline
from moeshapes.cli import NOTHING_FOUND
from moeshapes.commands.options import aiter_of_option, baseline_option, format_option, optional_tables_root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.findings import printable
from moeshapes.lint import LintResult, lint_files, tuned_files, tuned_files_in
from moeshapes.root import is_shapes_root
from moeshapes.rule import Severity
from moeshapes.runtime.version import Version
from moeshapes.table import Kind


@click.command("lint")
@click.argument("paths", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, path_type=Path))
@optional_tables_root_option
@baseline_option
@click.option(
    "--write-baseline",
    "to_write",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what is found to a file, for `--baseline`.",
)
@click.option("--errors", "errors_only", is_flag=True, help="Show errors alone.")
@aiter_of_option
@format_option
def command(
    paths: tuple[Path, ...],
    root: Path | None,
    baseline: Path | None,
    to_write: Path | None,
    errors_only: bool,
    version: Version,
    style: str,
) -> int:
    """Check tuned rows of any AITER fused-MoE table, or of all in a folder; without FILE, of all below the root.

    What shapes/ at or above the working directory declares (settings, kernel policies) counts for any table.
    """
    if root is None and not paths:
        raise click.UsageError("no tables here or above: name the files, run it inside a checkout, or give --root DIR")
    if baseline and to_write:
        raise click.UsageError("--baseline and --write-baseline exclude each other")
    files = _tables(paths) if paths else tuned_files(root or Path())
    result = lint_files(files, root, baseline, version=version)
    _refuse_other_tables(result)
    if to_write:
        return _write(to_write, result)
    looked_at = f"{counted(result.rows, 'readable row')} in {counted(len(result.tables), 'table')}"
    if paths and root and is_shapes_root(root):
        looked_at += f", judged with what {root / 'shapes'} declares"
    shown = [found for found in result.findings if not errors_only or found.rule.severity is Severity.ERROR]
    return show(shown, style, looked_at + result.set_aside + _hidden(len(result.findings) - len(shown)))


def _tables(paths: Iterable[Path]) -> list[Path]:
    """The files named, and the tuned tables of the folders named. Raises UsageError where a folder has none."""
    found = {path: tuned_files_in(path) if path.is_dir() else [path] for path in paths}
    empty = [str(path) for path, files in found.items() if not files]
    if empty:
        raise click.UsageError(f"no tuned fused-MoE table (*tuned_fmoe*.csv) in {', '.join(empty)}")
    return [file for files in found.values() for file in files]


def _refuse_other_tables(result: LintResult) -> None:
    """No finding in a table that lint does not read would look as if its rows were right."""
    others = [table.name for table in result.tables if table.kind is Kind.UNTUNED and table.header]
    if others:
        named = printable(", ".join(others))
        raise click.UsageError(f"not a tuned fused-MoE table, by its name and its columns: {named}")


def _hidden(count: int) -> str:
    return f", {counted(count, 'finding')} of lesser severity not shown" if count else ""


def _write(path: Path, result: LintResult) -> int:
    write_baseline(path, result.findings, result.tables)
    click.echo(f"moeshapes lint: wrote {counted(len(result.findings), 'finding')} to {path}", err=True)
    return NOTHING_FOUND
