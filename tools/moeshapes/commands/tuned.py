"""The tuned tables that a command looks calls up in."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.family import uncompared
from moeshapes.findings import ordered, render
from moeshapes.runtime.merged import MergedTable, merge
from moeshapes.runtime.version import Version
from moeshapes.tuned_tree import read_tuned_family

tuned_option = click.option(
    "--tuned",
    type=click.Path(exists=True, path_type=Path),
    help="Tuned tables: an AITER checkout, its configs, or one file alone; else those of the root.",
)


def read_tuned(tuned: Path | None, root: Path | None, version: Version | None = None) -> MergedTable:
    """The tables that the option names, else those of the root, merged. Raises UsageError where there are none.

    What is not among them, since it cannot be read, is said on stderr.
    """
    path = tuned or root
    family = read_tuned_family(path, root) if path else None
    if family is None:
        where = f"{path} has none" if path else "none here or above"
        raise click.UsageError(f"no tuned tables ({where}): give --tuned DIR, or run it inside a checkout")
    if path and path.is_file() and not family.tuned:
        raise click.UsageError(f"{path} is no tuned table, by its name and its columns")
    unread = ordered(finding for table in family.tuned.values() for finding in uncompared(table))
    if unread:
        click.echo(f"without what these faults keep from being read:\n{render(unread, 'text')}", err=True)
    return merge(family.tuned.values(), version)
