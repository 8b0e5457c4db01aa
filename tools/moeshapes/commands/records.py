"""`moeshapes records`: the committed records, kept in step with the tuned rows."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.commands.options import format_option, root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.findings import printable
from moeshapes.surplus import prune


@click.group("records")
def command() -> None:
    """Keep the committed records in step with the tuned rows."""


@command.command("prune")
@click.option("--dry-run", "dry", is_flag=True, help="Only say what would be removed.")
@root_option
@format_option
def prune_command(dry: bool, root: Path, style: str) -> int:
    """Remove records whose key, launch fields and use no tuned row has any more, and their signatures."""
    result = prune(root, dry)
    for path in result.removed:
        click.echo(f"{'would remove' if dry else 'removed'} {printable(path)}", err=style != "text")
    return show(result.findings, style, f"{len(result.removed)} of {counted(result.records, 'record')} surplus")
