"""Allowed signers: whose signatures count. A change cannot allow its own."""

from __future__ import annotations

from pathlib import Path

from moeshapes.findings import Finding, Place
from moeshapes.gate.base import Base
from moeshapes.rule import Rule, Severity

MAX_BYTES = 1 << 20
UNKNOWN_SIGNERS = Rule(
    "MOE516", "unknown-signers", Severity.ERROR,
    what="The file of allowed signers is committed in this change and is not in the base.",
    why="A change that says who may sign it can sign itself.",
    fix="Merge the file first, or name one outside of the repository.",
)  # fmt: skip


def allowed_signers(file: Path, root: Path, base: Base) -> tuple[bytes, list[Finding]]:
    """The content that counts: the base's where the repository has the file, else the file's own. Raises OSError."""
    path = file.resolve()
    name = path.relative_to(root.resolve()).as_posix() if path.is_relative_to(root.resolve()) else ""
    if not name or not base.is_committed(name):
        return path.read_bytes(), []
    content = base.content(name, MAX_BYTES)
    if content is None:
        return b"", [Finding(UNKNOWN_SIGNERS, Place(name), f"{base.name} has no such file")]
    return content, []
