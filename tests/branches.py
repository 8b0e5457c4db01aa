"""Repositories with branches for tests: a tree is the lines of its tables by their paths."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from table_text import text, write

MODELS = "generated/aiter/configs/model_configs"
A, B = f"{MODELS}/a_tuned_fmoe.csv", f"{MODELS}/b_tuned_fmoe.csv"
Tables = Mapping[str, Sequence[str]]


def git(directory: Path, *arguments: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.invalid", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *arguments], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout


def commit(root: Path, tables: Tables) -> None:
    """Makes the tables the tree of the current branch, and commits it."""
    for path in root.rglob("*.csv"):
        path.unlink()
    for name, lines in tables.items():
        write(root / name, text(*lines))
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "a tree")


def repository(root: Path, base: Tables, **branches: Tables) -> Path:
    """A repository of shapes. Its branches grew by a commit each from `main`, which is `base` and is checked out."""
    git(root, "init", "--quiet")
    for folder in ("models", "shapes"):
        write(root / folder / ".gitkeep", b"")
    commit(root, base)
    for name, tables in branches.items():
        git(root, "checkout", "--quiet", "-b", name, "main")
        commit(root, tables)
    git(root, "checkout", "--quiet", "main")
    return root
