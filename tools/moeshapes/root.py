"""The repository's root: found from where one stands, and how a file inside it is named to people."""

from __future__ import annotations

from pathlib import Path

DECLARATIONS = ("models", "shapes")


def find_root(start: Path) -> Path | None:
    """The nearest directory at or above `start` that holds models/ and shapes/; None where there is none."""
    for directory in (start, *start.parents):
        if all((directory / name).is_dir() for name in DECLARATIONS):
            return directory
    return None
