"""`moeshapes generate`: the derived files, written or compared."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.commands.options import format_option, root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.generate import generate


@click.command("generate")
@click.option("--check", is_flag=True, help="Write nothing; name each stale, missing or surplus file.")
@root_option
@format_option
def command(check: bool, root: Path, style: str) -> int:
    """Write the derived files from the YAML: untuned tables as AITER lays them out."""
    result = generate(root, check)
    for verb, names in (("wrote", result.written), ("removed", result.removed)):
        for name in names:
            click.echo(f"{verb} {name}", err=True)
    return show(result.findings, style, "" if check else f"{counted(len(result.unchanged), 'file')} unchanged")
