"""`moeshapes keys`: no two tuned rows with one key."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.commands.options import format_option, tables_root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.keys import check_keys


@click.command("keys")
@tables_root_option
@format_option
def command(root: Path, style: str) -> int:
    """Check that keys are unique over the tuned tables of this repository, or of an AITER checkout."""
    result = check_keys(root)
    return show(result.findings, style, f"{counted(result.rows, 'tuned row')} in {counted(result.tables, 'table')}")
