"""This repository's own tables and records, as a pull request that brings them."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from branches import git
from moeshapes.record import RECORDS

ROOT = Path(__file__).parents[1]
HAS_RECORDS = (ROOT / RECORDS).is_dir()
LINK = "https://e.example/{commit}/{file}#L{line}"
_TABLES = "generated/triton"
Rows = Mapping[tuple[str, int], Mapping[str, str]]
"""The cells of tuned rows by file and line."""


def own_repository(root: Path) -> Path:
    """What is committed of it, with the tables of the portable kernels and the records on a branch of their own."""
    for folder in ("models", "shapes", "generated/aiter"):
        shutil.copytree(ROOT / folder, root / folder)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "before")
    git(root, "checkout", "--quiet", "-b", "pr")
    for folder in (_TABLES, RECORDS):
        shutil.copytree(ROOT / folder, root / folder)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "rows and their records")
    return root


def portable_rows() -> Rows:
    return _rows_in(f"{_TABLES}/*_tuned_fmoe.csv")


def all_rows() -> Rows:
    return {**portable_rows(), **_rows_in("generated/aiter/configs/**/*_tuned_fmoe.csv")}


def _rows_in(pattern: str) -> Rows:
    return {
        (path.relative_to(ROOT).as_posix(), line): cells
        for path in sorted(ROOT.glob(pattern))
        for line, cells in enumerate(csv.DictReader(path.read_text(encoding="utf-8").splitlines()), 2)
    }


def place_of(url: str, root: Path) -> tuple[str, int]:
    """The file and line that a link leads to, at the commit that was reported."""
    head = git(root, "rev-parse", "HEAD").strip()
    match = re.fullmatch(rf"https://e\.example/{head}/([^#]+)#L(\d+)", url)
    assert match, url
    return match[1], int(match[2])
