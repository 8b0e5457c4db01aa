"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.findings import FORMATS
from moeshapes.root import find_root


def _declared_root(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path:
    root = given or find_root(Path.cwd())
    if root is None:
        raise click.UsageError("no models/ and shapes/ here or above: run it inside the repository, or give --root DIR")
    return root


_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)

root_option = click.option(
    "--root",
    type=_DIRECTORY,
    callback=_declared_root,
    help="The directory of models/ and shapes/ (else found upwards).",
)
format_option = click.option(
    "--format", "style", type=click.Choice(FORMATS), default="text", show_default=True, help="How findings are printed."
)
