"""Derived files: the untuned CSVs, a function of the YAML alone, and the rules' documentation.

Tuned CSVs and records are never touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from moeshapes.expand import Declarations
from moeshapes.family import TRITON
from moeshapes.files import write_together
from moeshapes.findings import Finding, Place, has_errors
from moeshapes.linked_folder import linked_folders
from moeshapes.repository import CONFIGS, TABLE_FOLDERS, csv_path, load_declarations
from moeshapes.rule import Rule, Severity
from moeshapes.table import render_untuned

MISSING_FILE = Rule(
    "MOE401", "missing-file", Severity.ERROR,
    what="A file that follows from the YAML and the rules has not been generated.",
    why="Tuners read the CSV, not the YAML: what is not in it is never tuned.",
    fix="Run `moeshapes generate` and commit what it writes.",
)  # fmt: skip
STALE_FILE = Rule(
    "MOE402", "stale-file", Severity.ERROR,
    what="A generated file is not what the YAML declares.",
    why="The YAML changed without it, or it was edited by hand and the edit would be lost.",
    fix="Run `moeshapes generate` and commit what it writes; what was edited by hand belongs in the YAML.",
)  # fmt: skip
SURPLUS_FILE = Rule(
    "MOE403", "surplus-file", Severity.ERROR,
    what="An untuned CSV stands among the generated files that no shape declares.",
    why="It looks as if its rows were declared and reviewed.",
    fix="Declare its rows in shapes/, or let `moeshapes generate` remove it.",
)  # fmt: skip


@dataclass(frozen=True)
class GenerateResult:
    """What `generate` found, and which files it wrote, removed and left as they were, by path below the root."""

    findings: list[Finding]
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)


def generate(root: Path, check: bool) -> GenerateResult:
    """Writes the derived files below `root`, or with `check` only compares them.

    Nothing is written where the declarations have errors. Raises OSError where a file cannot be read or written.
    """
    declarations, findings = load_declarations(root)
    findings = [*findings, *linked_folders(root, *TABLE_FOLDERS)]
    if has_errors(findings):
        return GenerateResult(findings)
    from moeshapes.rule_book import PATH, render_rules  # it imports whatever has rules, this module among them

    expected = {**derived_tables(declarations), PATH: render_rules()}
    surplus = [name for name in _untuned_files(root) if name not in expected]
    if check:
        return GenerateResult([*findings, *_differences(root, expected, surplus)])
    unchanged = [name for name, content in expected.items() if _content(root / name) == content]
    written = [name for name in expected if name not in unchanged]
    write_together({root / name: expected[name] for name in written})
    for name in surplus:
        (root / name).unlink(missing_ok=True)  # another process may generate at the same time
    return GenerateResult(findings, written, surplus, unchanged)


def derived_tables(declarations: Declarations) -> Mapping[str, bytes]:
    """Every untuned table's content, by its path below the root."""
    return {csv_path(csv): render_untuned(rows) for csv, rows in sorted(declarations.csvs.items())}


def _untuned_files(root: Path) -> Iterator[str]:
    for top in (CONFIGS, TRITON):
        for directory, folders, files in os.walk(root / top):
            folders.sort()
            for file in sorted(files):
                if "untuned" in file and file.endswith(".csv"):
                    yield Path(directory, file).relative_to(root).as_posix()


def _content(path: Path) -> bytes | None:
    """A plain file's content; None for what is not there, or is a link."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _differences(root: Path, expected: Mapping[str, bytes], surplus: list[str]) -> Iterator[Finding]:
    for name, content in expected.items():
        found = _content(root / name)
        if found is None:
            yield Finding(MISSING_FILE, Place(name), f"not generated: it is to have {len(content.splitlines())} lines")
        elif found != content:
            yield _first_difference(name, content, found)
    for name in surplus:
        yield Finding(SURPLUS_FILE, Place(name), "no shape declares this file")


def _first_difference(name: str, expected: bytes, found: bytes) -> Finding:
    lines = [text.decode("utf-8", "backslashreplace").split("\n") for text in (expected, found)]
    pairs = enumerate(zip_longest(*lines), start=1)
    line, (wanted, actual) = next((line, pair) for line, pair in pairs if pair[0] != pair[1])
    cells = _differing_cells(lines[0][0], wanted or "", actual or "")
    return Finding(STALE_FILE, Place(name, line), f"expected {_line(wanted)}, found {_line(actual)}{cells}")


def _differing_cells(header: str, wanted: str, actual: str) -> str:
    """Which cells of two rows differ; empty where the two are not rows of the table."""
    columns, expected, found = (text.split(",") for text in (header, wanted, actual))
    if wanted == header or not 1 < len(columns) == len(expected) == len(found):
        return ""
    cells = zip(columns, expected, found, strict=True)
    return ": " + ", ".join(f"{column} {cell} and not {other}" for column, cell, other in cells if cell != other)


def _line(text: str | None) -> str:
    """A line of a file as a message shows it: None beyond the end, empty after a last newline."""
    if text is None:
        return "the end of the file without a newline"
    return f"`{text if len(text) <= 300 else text[:297] + '...'}`" if text else "the end of the file"
