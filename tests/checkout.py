"""A copy of what an installation of this repository needs, to install from without touching the checkout."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "Makefile", ".pre-commit-hooks.yaml")


def copy_checkout(to: Path) -> Path:
    """Copies the package, its schemas (the symlink kept) and its packaging files into `to`, which it makes."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "tools", to / "tools", symlinks=True, ignore=ignored)
    shutil.copytree(ROOT / "schema", to / "schema")
    for name in FILES:
        shutil.copy2(ROOT / name, to / name)
    return to
