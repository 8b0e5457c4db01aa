"""Exporting: declared and tuned rows of AITER's tables into a checkout of it, by key, leaving all else as it is.

Rows of the portable kernels stay: AITER knows none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path

from moeshapes.expand import Declarations
from moeshapes.files import write_together
from moeshapes.findings import Finding, Place, has_errors
from moeshapes.line_fault import CRLF
from moeshapes.lint import tuned_files
from moeshapes.repository import CONFIGS, csv_path, tuned_name
from moeshapes.root import name_from
from moeshapes.row import UNTUNED_COLUMNS, UntunedRow, is_portable
from moeshapes.rule import Rule, Severity
from moeshapes.table import Line, Table, read_table, read_tuned_rows, render_untuned
from moeshapes.table_merge import Change, Identity, changes_of, identity_of, merge

WOULD_COLLIDE = Rule(
    "MOE621", "would-collide", Severity.ERROR,
    what="A row to export has the key of a row that stands in another table of the checkout.",
    why="AITER stops at start on a key that two tables have, after rewriting both.",
    fix="Remove one of the two rows, or declare the shape for the table that has it.",
)  # fmt: skip
BAD_EXPORT_TARGET = Rule(
    "MOE622", "bad-export-target", Severity.ERROR,
    what="A file of the checkout cannot be written into.",
    why="It is damaged, or a link out of the checkout: what comes out of writing into it cannot be foreseen.",
    fix="Mend the file in the checkout first.",
)  # fmt: skip

AFTERWARDS = (
    "Before a comparison delete /tmp/aiter_configs: the merged tables are kept there, for every checkout and user.",
    "Keep AITER_CONFIG_FMOE unset: one path in it replaces all tables, these among them, and is read unmerged.",
)
"""What else decides which rows AITER reads (contract 1.2, 1.4)."""


@dataclass(frozen=True)
class FileChange:
    """A file of the checkout as it is (None: not there) and as it is to be. `name` is its path below the checkout."""

    path: Path
    name: str
    before: bytes | None
    after: bytes
    added: int
    replaced: int

    def diff(self) -> str:
        """A unified diff, as git shows one."""
        old = f"a/{self.name}" if self.before is not None else "/dev/null"
        lines = unified_diff(_lines(self.before), _lines(self.after), old, f"b/{self.name}", n=1)
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode("utf-8", "backslashreplace").splitlines(keepends=True)


@dataclass(frozen=True)
class ExportResult:
    """What is to change, nothing where there are errors among the findings."""

    changes: tuple[FileChange, ...]
    findings: tuple[Finding, ...]


def plan_export(root: Path, configs: Path, declarations: Declarations, undeclared: bool = True) -> ExportResult:
    """What exporting `declarations` and the tuned rows into the checkout's aiter/configs would change. Raises OSError.

    Without `undeclared`, only the tuned rows of what is declared there.
    """
    checkout = configs.parent.parent if configs.parts[-2:] == ("aiter", "configs") else configs
    exporter = _Exporter(root, configs, checkout, None if undeclared else declarations)
    changes = [
        *(exporter.untuned(csv, rows) for csv, rows in sorted(declarations.csvs.items()) if not is_portable(csv)),
        *(exporter.tuned(path) for path in tuned_files(root) if path.is_relative_to(root / CONFIGS)),
    ]
    findings = tuple(exporter.findings)
    wanted = tuple(change for change in changes if change and change.before != change.after)
    return ExportResult(() if has_errors(findings) else wanted, findings)


def write_export(changes: Sequence[FileChange]) -> None:
    """Writes all files or none. Raises OSError."""
    write_together({change.path: change.after for change in changes})


class _Exporter:
    """`only`: whose tuned rows are wanted; None for all, declared or not."""

    def __init__(self, root: Path, configs: Path, checkout: Path, only: Declarations | None) -> None:
        self.root, self.configs, self.checkout, self.only = root, configs, checkout, only
        self.findings: list[Finding] = []
        self.family = {table.name: table for table in self._tuned_tables()}
        self.places = dict(self._identities())

    def _tuned_tables(self) -> Iterator[Table]:
        paths = [self.configs / "tuned_fmoe.csv", *sorted(self.configs.glob("model_configs/*tuned_fmoe*.csv"))]
        for path in paths:
            if path.is_file() and "untuned" not in path.name:
                yield read_table(path, name_from(self.checkout, path))

    def _identities(self) -> Iterator[tuple[Identity, Place]]:
        for table in self.family.values():
            for line in table.lines:
                identity = identity_of(table, line)
                if identity:
                    yield identity, table.place(line)

    def untuned(self, csv: str, rows: Sequence[UntunedRow]) -> FileChange | None:
        path = self.configs / csv_path(csv).removeprefix(f"{CONFIGS}/")
        if not self._is_inside(path):
            return None
        name = name_from(self.checkout, path)
        if not path.exists():
            return FileChange(path, name, None, render_untuned(rows), len(rows), 0)
        table = read_table(path, name)
        if self._is_damaged(table):
            return None
        there = {tuple(table.cell(line, column) for column in UNTUNED_COLUMNS) for line in table.lines if line.cells}
        new = [row for row in rows if tuple(row.cells()) not in there]
        before = table.render()
        added = b"".join(_as_line(table, row) for row in new)
        whole = before if before.endswith(b"\n") or not added else before + b"\n"
        return FileChange(path, name, before, whole + added, len(new), 0)

    def tuned(self, source_path: Path) -> FileChange | None:
        source = self._wanted(read_table(source_path, name_from(self.root, source_path)))
        if source is None:
            return None
        errors = [finding for finding in source.findings if finding.rule.severity is Severity.ERROR]
        self.findings += errors
        path = self.configs / source_path.relative_to(self.root / CONFIGS)
        if errors or not self._is_inside(path):
            return None
        name, rows = name_from(self.checkout, path), read_tuned_rows(source)
        target = self.family.get(name)
        if target is None:
            self._collisions([Change(row, Line(0, b""), None) for row in rows])
            return FileChange(path, name, None, source.render(), len(rows), 0)
        if self._is_damaged(target):
            return None
        changes, lost = changes_of(target, source, rows)
        self.findings += lost
        self._collisions(changes)
        new = [change for change in changes if not change.old]
        replaced = sum(change.old is not None and not change.is_none for change in changes)
        return FileChange(path, name, target.render(), merge(target, changes).render(), len(new), replaced)

    def _wanted(self, source: Table) -> Table | None:
        """The table with the wanted rows alone; None where it has none, and no fault that may hide one."""
        if self.only is None:
            return source
        wanted = {row.place.line for row in read_tuned_rows(source) if self.only.of_row(row)}
        own = source.name in {csv_path(tuned_name(csv)) for csv in self.only.csvs}
        lines = tuple(line for line in source.lines if line.number in wanted)
        return replace(source, lines=lines) if lines or (own and has_errors(source.findings)) else None

    def _collisions(self, changes: Sequence[Change]) -> None:
        """Rows that are new to their table, and stand in another."""
        for change in changes:
            other = self.places.get((change.row.key, change.row.tag))
            if other and not change.old:
                self.findings.append(
                    Finding(WOULD_COLLIDE, change.row.place, f"{change.row.key} stands at {other} too")
                )

    def _is_inside(self, path: Path) -> bool:
        inside = path.resolve().is_relative_to(self.configs.resolve()) and not path.is_symlink()
        if not inside:
            place = Place(name_from(self.checkout, path))
            self.findings.append(Finding(BAD_EXPORT_TARGET, place, "the file, or its folder, is a link"))
        return inside

    def _is_damaged(self, table: Table) -> bool:
        """Whether lines around the exported ones may not be what they seem. Faults within other rows do not matter."""
        foreign = {line.number for line in table.lines if line.cells is None}
        damage = [
            Finding(BAD_EXPORT_TARGET, finding.place, finding.message)
            for finding in table.findings
            if finding.rule.severity is Severity.ERROR
            and (finding.place.line <= 1 or finding.place.line in foreign or finding.rule is CRLF)
        ]
        self.findings += damage
        return bool(damage)


def _as_line(table: Table, row: UntunedRow) -> bytes:
    cells: Mapping[str, str] = dict(zip(UNTUNED_COLUMNS, row.cells(), strict=True))
    return (",".join(cells.get(column, "") for column in table.header) + "\n").encode()
