"""Adopting: bringing rows that a tuner measured into the tuned tables of this repository."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from moeshapes.cell import CORE_COLUMNS, KNOWN_COLUMNS
from moeshapes.expand import Declarations, row_order
from moeshapes.files import write_together
from moeshapes.findings import Finding, Place, has_errors, ordered, printable
from moeshapes.linked_folder import linked_folders
from moeshapes.repository import TABLE_FOLDERS, csv_path, tuned_name
from moeshapes.row import TunedRow
from moeshapes.rule import Rule, Severity
from moeshapes.rules import lint_row, lint_rows
from moeshapes.rules.declared import UNDECLARED, undeclared
from moeshapes.table import Line, Table, key_of, parse_table, read_table
from moeshapes.table_merge import Change, Identity, changes_of, merge

CHOSEN_TWICE = Rule(
    "MOE134",
    "chosen-twice",
    Severity.ERROR,
    what="Two rows that are to be adopted have the same key.",
    why="Only one of them can stand in the table.",
    fix="Choose one of them with --rows.",
)
NO_SOURCE = Rule(
    "MOE136",
    "no-source",
    Severity.ERROR,
    what="Rows are adopted without a word on where they come from.",
    why="A time without its GPU, commit and command cannot be judged or repeated.",
    fix="Say it with --source: GPU, ROCm and AITER commit, command or pull request.",
)
BAD_TARGET = Rule(
    "MOE137",
    "bad-target",
    Severity.ERROR,
    what="The name of a target table is not one that AITER merges, or leaves its folder.",
    why="AITER reads tables by their names.",
    fix="Name it like `glm5_fp4_tuned_fmoe.csv`.",
)

FULL_HEADER = ("gfx", *CORE_COLUMNS, "xbf16", "flat", "tflops", "bw", "_tag")
"""The header of AITER's current tuner."""

_TARGET_NAME = re.compile(r"[A-Za-z0-9_.-]*tuned_fmoe[A-Za-z0-9_.-]*\.csv")


@dataclass(frozen=True)
class AdoptResult:
    """What was found; a text for the commit message; the files written, none where there are errors."""

    findings: tuple[Finding, ...]
    text: str = ""
    written: tuple[Path, ...] = ()


def adopt(source: Table, rows: Sequence[TunedRow], note: str, root: Path, declarations: Declarations) -> AdoptResult:
    """Brings `rows` of `source` into the tuned tables that their shapes declare, below `root`; all of them or none.

    A row displaces the one of the same key and tag. Other rows and unknown columns stay; rows stand in canonical order.
    """
    findings = [*linked_folders(root, *TABLE_FOLDERS), *_objections(source, rows, note, declarations)]
    updates: list[tuple[str, Table, list[Change]]] = []
    for name, chosen in _by_target(rows, declarations).items():
        csv = csv_path(name)
        if not _TARGET_NAME.fullmatch(name):
            findings.append(Finding(BAD_TARGET, Place(csv), f"`{name}` is no name of a tuned fused-MoE table"))
            continue
        target, wrong = _target(root, csv, source, chosen)
        if wrong:
            findings += wrong  # what a table lacks that cannot be read, nobody knows
            continue
        changes, lost = changes_of(target, source, chosen)
        findings += lost
        updates.append((csv, target, changes))
    found = tuple(ordered(findings))
    if has_errors(found):
        return AdoptResult(found)
    changed = [(csv, target, changes) for csv, target, changes in updates if not all(c.is_none for c in changes)]
    contents = {root / csv: _render(target, changes) for csv, target, changes in changed}
    write_together(contents)
    warned = (*found, *_warnings([c.row for _, _, changes in changed for c in changes if not c.is_none], declarations))
    return AdoptResult(tuple(ordered(warned)), "\n".join(_describe(source, note, updates)), tuple(contents))


def _warnings(rows: Iterable[TunedRow], declarations: Declarations) -> Iterator[Finding]:
    """What `check` will warn of in the rows by themselves. Of their series only it can tell, which sees the rest."""
    found = (finding for row in rows for finding in lint_row(row, declarations))
    return (finding for finding in found if finding.rule.severity is Severity.WARNING)


def _objections(source: Table, rows: Sequence[TunedRow], note: str, declarations: Declarations) -> Iterator[Finding]:
    """What forbids the rows themselves: their faults, their policy, that nobody declares them, that two are one."""
    if not note.strip():
        yield Finding(NO_SOURCE, Place("--source"), "no source is given")
    lines = {row.place.line for row in rows}
    yield from (finding for finding in source.findings if finding.place.line in lines)
    yield from (found for found in lint_rows(rows, declarations) if found.rule.severity is Severity.ERROR)
    places: defaultdict[tuple[Identity, bool], list[Place]] = defaultdict(list)
    for row in rows:
        places[(row.key, row.tag), row.is_portable].append(row.place)
        if not declarations.of_row(row):
            yield Finding(UNDECLARED, row.place, undeclared(row))
    for ((key, _), _), same in places.items():
        for place in same if len(same) > 1 else ():
            others = ", ".join(str(other) for other in same if other != place)
            yield Finding(CHOSEN_TWICE, place, f"{key} is chosen at {others} too")


def _by_target(rows: Iterable[TunedRow], declarations: Declarations) -> Mapping[str, list[TunedRow]]:
    """The declared rows by the name of their tuned table."""
    targets: defaultdict[str, list[TunedRow]] = defaultdict(list)
    for row in rows:
        declared = declarations.of_row(row)
        if declared:
            targets[tuned_name(declared[0].csv)].append(row)
    return dict(sorted(targets.items()))


def _target(root: Path, csv: str, source: Table, rows: Sequence[TunedRow]) -> tuple[Table, list[Finding]]:
    """The table to write into, a new one where there is none, and the errors that forbid writing into it."""
    if not (root / csv).exists():
        return _new_table(csv, source, rows), []
    table = read_table(root / csv, csv)
    return table, [finding for finding in table.findings if finding.rule.severity is Severity.ERROR]


def _new_table(csv: str, source: Table, rows: Sequence[TunedRow]) -> Table:
    """An empty table with the current header; columns that only the source has stand before tflops, as AITER merges."""
    wanted = {row.place.line for row in rows}
    lines = [line for line in source.lines if line.number in wanted]
    extra = [c for c in source.header if c not in KNOWN_COLUMNS and any(source.cell(line, c) for line in lines)]
    at = FULL_HEADER.index("tflops")
    header = (*FULL_HEADER[:at], *extra, *FULL_HEADER[at:])
    return parse_table((",".join(header) + "\n").encode(), csv)


def _render(target: Table, changes: Sequence[Change]) -> bytes:
    """The table with the changes, in canonical order."""
    merged = merge(target, changes)
    lines = sorted(merged.lines, key=lambda line: _order(target, line))
    whole = [line if line.raw.endswith(b"\n") else replace(line, raw=line.raw + b"\n") for line in lines]
    return replace(merged, lines=tuple(whole)).render()


def _order(table: Table, line: Line) -> tuple[object, ...]:
    """By device, then as untuned tables; lines that are no rows come last."""
    key = key_of(table, line)
    return (0, key.gfx, key.cu_num, *row_order(key.shape), table.cell(line, "_tag")) if key else (1,)


def _describe(source: Table, note: str, updates: Sequence[tuple[str, Table, list[Change]]]) -> Iterator[str]:
    """A commit message: where the rows come from, what each displaced; below it, the rows that were there already."""
    total = sum(not change.is_none for _, _, changes in updates for change in changes)
    if total:
        yield f"Adopt {total} tuned row{'' if total == 1 else 's'} from {source.name.rpartition('/')[2]}"
        yield f"\nSource: {printable(note.strip())}"
    for csv, _, changes in updates:
        yield from _describe_changes(f"\n{csv}", [change for change in changes if not change.is_none])
    for csv, _, changes in updates:
        yield from _describe_changes(f"There already: {csv}", [change for change in changes if change.is_none])


def _describe_changes(heading: str, changes: Sequence[Change]) -> Iterator[str]:
    if changes:
        yield heading
        for change in changes:
            yield from _describe_change(change)


def _describe_change(change: Change) -> Iterator[str]:
    row = change.row
    kernels = " + ".join(kernel for kernel in (row.kernel1, row.kernel2) if kernel)
    yield f"  {row.key}: {row.us:g} µs, block_m {row.block_m}, {kernels}"
    if change.old and not change.is_none:
        yield f"    displaces {change.old.render().decode().strip()}"
