"""`moeshapes lint`: static rules on tuned rows."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.commands.options import format_option, optional_tables_root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.lint import lint_files, tuned_files


@click.command("lint")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@optional_tables_root_option
@format_option
def command(files: tuple[Path, ...], root: Path | None, style: str) -> int:
    """Check tuned rows of any AITER fused-MoE table; without FILE, of all below the root."""
    if root is None and not files:
        raise click.UsageError("no tables here or above: name the files, run it inside a checkout, or give --root DIR")
    result = lint_files(files or tuned_files(root or Path()), root)
    return show(result.findings, style, f"{counted(result.rows, 'readable row')} in {counted(result.tables, 'table')}")
