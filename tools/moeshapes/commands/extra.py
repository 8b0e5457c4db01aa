"""What a base install lacks: said in one line, with how to get it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def saying_what_to_install(extra: str) -> Iterator[None]:
    """Turns the failed import of another package into a refusal that names the extra which brings it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        needed = f"this needs {missing.name}, which a base install lacks"
        raise click.ClickException(f"{needed}: pip install 'moeshapes[{extra}]'") from missing
