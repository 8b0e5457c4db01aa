"""The tuned tables that a command looks calls up in."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.runtime.merged import MergedTable
from moeshapes.runtime.version import Version
from moeshapes.tuned_tree import read_tuned_tree

tuned_option = click.option(
    "--tuned",
    type=click.Path(exists=True, path_type=Path),
    help="Tuned tables: an AITER checkout, its configs, or one file alone; else those of the root.",
)


def read_tuned(tuned: Path | None, root: Path | None, version: Version | None = None) -> MergedTable:
    """The tables that the option names, else those of the root, merged. Raises UsageError where there are none."""
    path = tuned or root
    table = read_tuned_tree(path, root, version) if path else None
    if table is None:
        where = f"{path} has none" if path else "none here or above"
        raise click.UsageError(f"no tuned tables ({where}): give --tuned DIR, or run it inside a checkout")
    return table
