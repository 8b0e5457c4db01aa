"""Folders that are links: what stands behind one is outside the repository, and nothing is to be written there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from moeshapes.findings import Finding, Place
from moeshapes.rule import Rule, Severity

LINKED_FOLDER = Rule(
    "MOE404", "linked-folder", Severity.ERROR,
    what="A folder for generated files is a link, or something else than a folder.",
    why="Writing through it would change files outside the repository.",
    fix="Replace it by a folder.",
)  # fmt: skip


def linked_folders(root: Path, *folders: str) -> Iterator[Finding]:
    """A finding for each part of these paths below `root` that is there and is no folder of its own."""
    for part in dict.fromkeys(part for folder in folders for part in accumulate(folder.split("/"), "{}/{}".format)):
        path = root / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            yield Finding(LINKED_FOLDER, Place(part), f"`{part}` is not a folder of this repository")
