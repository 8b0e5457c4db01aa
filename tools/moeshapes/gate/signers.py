"""Allowed signers: whose signatures count. A change cannot allow its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from errno import ELOOP
from pathlib import Path

from moeshapes.findings import Finding, Place
from moeshapes.gate.base import Base
from moeshapes.root import name_from
from moeshapes.rule import Rule, Severity

MAX_BYTES = 1 << 20
_MOST_LINKS = 40
"""As Linux has it."""
UNKNOWN_SIGNERS = Rule(
    "MOE516", "unknown-signers", Severity.ERROR,
    what="The file of allowed signers is committed in this change and is not in the base.",
    why="A change that says who may sign it can sign itself.",
    fix="Merge the file first, or name one outside of the repository.",
)  # fmt: skip


def allowed_signers(file: Path, root: Path, base: Base) -> tuple[bytes, list[Finding]]:
    """The content that counts: the base's where it has the file, else the file's own. Raises OSError, GitError.

    A change may make a link of the file, or of a folder above it: where each link leads is asked about by itself.
    """
    path = file
    for path in _ways(file):
        content = base.content_at(path, MAX_BYTES)
        if content is not None:
            return content, []
        if not base.leaves_open(path):
            place = Place(name_from(root.resolve(), path))
            return b"", [Finding(UNKNOWN_SIGNERS, place, f"{base.name} has no such file")]
    return path.read_bytes(), []


def _ways(file: Path) -> Iterator[Path]:
    """The path of a file as it was given, then with one link more followed each, from the left; the last has none."""
    path = Path(os.path.abspath(file))
    for _ in range(_MOST_LINKS):
        yield path
        link = next((way for way in (*reversed(path.parents), path) if way.is_symlink()), None)
        if link is None:
            return
        path = Path(os.path.abspath(link.parent / os.readlink(link) / path.relative_to(link)))
    raise OSError(ELOOP, os.strerror(ELOOP), str(file))
