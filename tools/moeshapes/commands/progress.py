"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

_WORTH_A_RATE_S = 10.0
"""What is over sooner needs no forecast."""


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yields what to call, with a line about it, each time one of `total` things is done."""
    if sys.stderr.isatty():
        with click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True) as bar:
            yield lambda line: bar.update(1)
        return
    count, began = 0, time.monotonic()

    def report(line: str) -> None:
        nonlocal count
        count += 1
        forecast = forecast_of(count, total, time.monotonic() - began)
        click.echo(f"{label} {count}/{total}: {line}{forecast}", err=True)

    yield report


def forecast_of(count: int, total: int, seconds: float) -> str:
    """` (12 a minute, 2 min left)`: by what was done in so many seconds; empty at the beginning and at the end."""
    if seconds < _WORTH_A_RATE_S or count >= total:
        return ""
    left = (total - count) * seconds / count
    shown = f"{left:.0f} s" if left < 60 else f"{left / 60:.0f} min"
    return f" ({60 * count / seconds:.3g} a minute, {shown} left)"
