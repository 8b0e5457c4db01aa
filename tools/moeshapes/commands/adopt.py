"""`moeshapes adopt`: measured rows into this repository's tuned tables."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.adopt import AdoptResult, adopt
from moeshapes.commands.options import format_option, root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.findings import has_errors
from moeshapes.repository import load_declarations
from moeshapes.root import name_from
from moeshapes.selection import select_rows
from moeshapes.table import read_table


def _required_note(context: click.Context, parameter: click.Parameter, given: str | None) -> str:
    if given is None:
        raise click.UsageError(
            'say where the rows come from, for example: --source "MI355X, ROCm 7.0, AITER e4048607a5"'
        )
    return given


@click.command("adopt")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--source",
    "note",
    callback=_required_note,
    help="Where the rows come from: GPU, ROCm, AITER commit, command. Required.",
)
@click.option(
    "--rows",
    "selectors",
    multiple=True,
    help="A line number, or `column=value,…`; may be repeated. Without it, all rows.",
)
@root_option
@format_option
def command(file: Path, note: str, selectors: tuple[str, ...], root: Path, style: str) -> int:
    """Bring tuned rows of FILE into the tables that their shapes declare, and print what to say in the commit."""
    result = _adopt_file(file, note, selectors, root)
    if result.text:
        click.echo(result.text, err=style != "text")
    aside = style == "text" and bool(result.text)  # stdout is then a commit message
    return show(result.findings, style, f"{counted(len(result.written), 'table')} written", aside)


def _adopt_file(file: Path, note: str, selectors: tuple[str, ...], root: Path) -> AdoptResult:
    table = read_table(file, name_from(root, file))
    rows, unselected = select_rows(table, selectors)
    declarations, undeclared = load_declarations(root)
    if has_errors(obstacles := (*unselected, *undeclared)):
        return AdoptResult(obstacles)
    return adopt(table, rows, note, root, declarations)
