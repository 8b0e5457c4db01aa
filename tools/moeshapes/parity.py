"""Parity: whether the YAML declares every untuned row that AITER publishes, each for the file it stands in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moeshapes.expand import Declarations, DeclaredRow
from moeshapes.findings import Finding, Place
from moeshapes.repository import GENERAL_UNTUNED
from moeshapes.root import name_from
from moeshapes.row import UNTUNED_COLUMNS
from moeshapes.rule import Rule, Severity
from moeshapes.table import Table, read_table
from moeshapes.yaml_text import listed_tokens

NOT_DECLARED = Rule(
    "MOE411", "upstream-row-missing", Severity.ERROR,
    what="A row of AITER's untuned tables is declared by no shape for that file.",
    why="It would be tuned and served without anybody here knowing who hits it.",
    fix="Declare it in shapes/; where it is irregular, as an override with a note.",
)  # fmt: skip
UNEXPLAINED = Rule(
    "MOE412", "unexplained-surplus", Severity.WARNING,
    what="A shape declares rows that AITER's file of that name does not have, and does not say why.",
    why="It may be a slip: another bucket, width or file than was meant.",
    fix="Say in the shape file why: `not_upstream: REASON`. Or correct it.",
)  # fmt: skip

_Cells = tuple[str, ...]


@dataclass(frozen=True)
class Surplus:
    """Rows that one deployment declares beyond AITER's file, and why; the reason is empty where none is given."""

    deployment: str
    rows: int
    reason: str


@dataclass(frozen=True)
class FileParity:
    """One untuned file's count of rows: AITER's, the declared ones, those that only one of the two has."""

    csv: str
    upstream: int
    declared: int
    missing: int
    surplus: tuple[Surplus, ...]

    @property
    def surplus_rows(self) -> int:
        return sum(surplus.rows for surplus in self.surplus)


@dataclass(frozen=True)
class ParityResult:
    """Every file, AITER's and declared ones, and all that is wrong; `left_out` are tables of other families."""

    files: tuple[FileParity, ...]
    findings: tuple[Finding, ...]
    left_out: tuple[str, ...]


def compare(configs: Path, declarations: Declarations) -> ParityResult:
    """Compares AITER's untuned tables below `configs` (its aiter/configs) with what is declared. Raises OSError.

    Rows are compared as written: a spelling that the tuner would not read is another row. Those of the portable kernels
    are none of AITER's.
    """
    tables = {path.name: read_table(path, name_from(configs, path)) for path in untuned_files(configs)}
    declared: dict[str, dict[_Cells, DeclaredRow]] = defaultdict(dict)
    for row in declarations.rows:
        if not row.is_portable:
            declared[row.csv].setdefault(tuple(row.written.cells()), row)
    reasons = {shape.deployment: shape.not_upstream for shape in declarations.shapes}
    files: list[FileParity] = []
    findings: list[Finding] = []
    for csv in sorted(tables.keys() | declared.keys()):
        file, wrong = _compare_file(csv, tables.get(csv), declared.get(csv, {}), reasons)
        files.append(file)
        findings += wrong
    return ParityResult(tuple(files), tuple(findings), tuple(_other_families(configs)))


def untuned_files(configs: Path) -> list[Path]:
    """AITER's untuned fused-MoE tables: the general list and those of single models."""
    return [
        path
        for path in (configs / GENERAL_UNTUNED, *sorted(configs.glob("model_configs/*untuned_fmoe*.csv")))
        if path.is_file()
    ]


def _other_families(configs: Path) -> Iterator[str]:
    return (path.name for path in sorted(configs.glob("untuned_*moe*.csv")) if path.name != GENERAL_UNTUNED)


def _compare_file(
    csv: str, table: Table | None, declared: Mapping[_Cells, DeclaredRow], reasons: Mapping[str, str]
) -> tuple[FileParity, list[Finding]]:
    rows = _rows(table) if table else {}
    findings = list(_malformed(table)) if table else []
    missing = [cells for cells in rows if cells not in declared]
    findings += [
        Finding(NOT_DECLARED, rows[cells][0], f"no shape declares `{','.join(cells)}` for {csv}") for cells in missing
    ]
    surplus = tuple(_surplus([row for cells, row in declared.items() if cells not in rows], reasons, csv, findings))
    upstream = sum(len(places) for places in rows.values())
    return FileParity(csv, upstream, len(declared), len(missing), surplus), findings


def _rows(table: Table) -> dict[_Cells, list[Place]]:
    """The readable rows as written, each with its places."""
    rows: dict[_Cells, list[Place]] = defaultdict(list)
    for line in table.lines:
        if line.sound:
            rows[tuple(table.cell(line, column) for column in UNTUNED_COLUMNS)].append(table.place(line))
    return rows


def _malformed(table: Table) -> Iterator[Finding]:
    """What kept rows out of the comparison. How a readable row is spelled is AITER's own business."""
    sound = {line.number for line in table.lines if line.sound}
    return (f for f in table.findings if f.rule.severity is Severity.ERROR and f.place.line not in sound)


def _surplus(
    rows: Sequence[DeclaredRow], reasons: Mapping[str, str], csv: str, findings: list[Finding]
) -> Iterator[Surplus]:
    by_deployment: dict[str, list[DeclaredRow]] = defaultdict(list)
    for row in rows:
        by_deployment[row.use.deployment].append(row)
    for deployment, extra in by_deployment.items():
        reason = reasons[deployment]
        if not reason:
            tokens = listed_tokens({row.row.token for row in extra})
            message = f"AITER's {csv} has no such row at tokens {tokens}"
            findings.append(Finding(UNEXPLAINED, extra[0].place, message))
        yield Surplus(deployment, len(extra), reason)
