"""`moeshapes report`: the last verification as markdown."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.commands.options import root_option
from moeshapes.record import REPORT


@click.command("report")
@root_option
def command(root: Path) -> None:
    """Print what the last `moeshapes verify` found, as markdown for a pull request."""
    path = root / REPORT
    if not path.is_file():
        raise click.ClickException(f"there is no {REPORT} yet: run `make verify` first")
    click.echo(path.read_text(encoding="utf-8", errors="replace"), nl=False)
