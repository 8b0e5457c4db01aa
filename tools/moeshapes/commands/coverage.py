"""`moeshapes coverage`: which declared token buckets the tuned tables serve."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.commands.models import models_argument, narrowed
from moeshapes.commands.options import root_option
from moeshapes.commands.tuned import read_tuned, tuned_option
from moeshapes.coverage import cover
from moeshapes.coverage_view import as_json, as_text
from moeshapes.deployment import deployments
from moeshapes.findings import json_text, printable
from moeshapes.repository import load_declarations


@click.command("coverage")
@models_argument
@tuned_option
@root_option
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(models: tuple[str, ...], tuned: Path | None, root: Path, style: str) -> int:
    """Show deployments by token buckets: tuned, served otherwise, left out, or a gap. MODEL narrows it to models.

    With --tuned, those that the tables can be of: AITER's serve no deployment of the portable kernels.
    """
    tables = read_tuned(tuned, root)
    declarations, _ = load_declarations(root)
    asked = deployments(narrowed(declarations, models))
    coverages = [
        coverage for d in asked if (table := tables.of(d.is_portable)) is not None for coverage in cover([d], table)
    ]
    click.echo(json_text(as_json(coverages), indent=2) if style == "json" else printable_lines(as_text(coverages)))
    return 0


def printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))
