"""`moeshapes check`: everything that a CPU can check."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.check import check_repository
from moeshapes.commands.options import baseline_option, format_option, root_option
from moeshapes.commands.outcome import counted, show


@click.command("check")
@root_option
@baseline_option
@format_option
def command(root: Path, baseline: Path | None, style: str) -> int:
    """Check declarations, freshness of generated/, keys and tuned rows."""
    result = check_repository(root, baseline)
    return show(result.findings, style, counted(result.rows, "tuned row") + result.set_aside)
