"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yields what to call, with a line about it, each time one of `total` things is done."""
    if sys.stderr.isatty():
        with click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True) as bar:
            yield lambda line: bar.update(1)
        return
    count = 0

    def report(line: str) -> None:
        nonlocal count
        count += 1
        click.echo(f"{label} {count}/{total}: {line}", err=True)

    yield report
