"""The tuned tables that a command looks calls up in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from moeshapes.family import uncompared
from moeshapes.findings import ordered, render
from moeshapes.runtime.merged import MergedTable, merge
from moeshapes.runtime.version import Version
from moeshapes.tuned_tree import read_portable_family, read_tuned_family

tuned_option = click.option(
    "--tuned",
    type=click.Path(exists=True, path_type=Path),
    help="Tuned tables: an AITER checkout, its configs, or one file alone; else those of the root.",
)


@dataclass(frozen=True)
class TunedTables:
    """Merged tables to look calls up in, None for a backend that has none there."""

    aiter: MergedTable | None
    portable: MergedTable | None

    def of(self, portable: bool) -> MergedTable | None:
        return self.portable if portable else self.aiter


def read_tuned(tuned: Path | None, root: Path | None, version: Version | None = None) -> TunedTables:
    """The tables that the option names, else those of the root, merged. Raises UsageError where there are none.

    What is not among them, since it cannot be read, is said on stderr.
    """
    path = tuned or root
    families = [read(path, root) if path else None for read in (read_tuned_family, read_portable_family)]
    there = [family for family in families if family]
    if not there:
        where = f"{path} has none" if path else "none here or above"
        raise click.UsageError(f"no tuned tables ({where}): give --tuned DIR, or run it inside a checkout")
    if path and path.is_file() and not any(family.tuned for family in there):
        raise click.UsageError(f"{path} is no tuned table, by its name and its columns")
    tables = [table for family in there for table in family.tuned.values()]
    unread = ordered(finding for table in tables for finding in uncompared(table))
    if unread:
        click.echo(f"without what these faults keep from being read:\n{render(unread, 'text')}", err=True)
    return TunedTables(*(merge(family.tuned.values(), version) if family else None for family in families))
