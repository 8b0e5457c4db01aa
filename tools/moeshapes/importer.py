"""Importing: what others have written down about shapes, as this repository's YAML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moeshapes.document import parse_document
from moeshapes.expand import Declarations
from moeshapes.findings import Finding, Place, has_errors
from moeshapes.hf_config import facts_of, model_id, read_config
from moeshapes.log_line import MARK, Lookup, parse_log_line
from moeshapes.model import read_model
from moeshapes.row import Key
from moeshapes.rule import Rule, Severity
from moeshapes.shape_draft import Wanted, draft_shapes
from moeshapes.table import Kind, Table, canonical_cell, key_of, read_table, shape_of
from moeshapes.yaml_text import model_text

NOTHING_TO_IMPORT = Rule(
    "MOE605", "nothing-to-import", Severity.ERROR,
    what="A file holds nothing that can be imported.",
    why="It is not what was meant, or of a form that is not known.",
    fix="Give a config.json, an AITER fused-MoE table, or a log with lines of `[fused_moe] using … default for (…)`.",
)  # fmt: skip
NOT_A_SOURCE = Rule(
    "MOE606", "backup-or-profile", Severity.INFO,
    what="A backup, a profile or another by-product of tuning is passed over.",
    why="Its rows are old or unfinished, and nothing reads them.",
    fix="Give it another name if it is meant.",
)  # fmt: skip
UNREADABLE_LOG_LINE = Rule(
    "MOE607", "log-line", Severity.WARNING,
    what="A log line about a lookup cannot be read.",
    why="The miss that it may tell of is not counted.",
    fix="Take the line from the log again, whole.",
)  # fmt: skip
NO_CHECKPOINT = Rule(
    "MOE608", "no-checkpoint", Severity.ERROR,
    what="Nothing says which checkpoint a config.json belongs to.",
    why="The model file would have no name, and nobody could compare it with its source.",
    fix="Say it with --checkpoint OWNER/NAME.",
)  # fmt: skip

ALREADY_THERE = Rule(
    "MOE611", "already-there", Severity.ERROR,
    what="A file that an import would write is there already.",
    why="What people wrote is never overwritten.",
    fix="Print the import instead, and bring over what is new by hand.",
)  # fmt: skip

_BY_PRODUCTS = (".bak", "_bak", ".orig", ".rej", ".tmp", "~")
_HEAD_BYTES = 1 << 16
_MAX_LINE = 1 << 16
_MAX_UNREADABLE = 100
"""Lines of a log that are named where they cannot be read; more are counted."""


@dataclass(frozen=True)
class ImportResult:
    """Files to write, by their paths below a repository's root; what was counted, a line each; what is wrong."""

    files: Mapping[str, str] = field(default_factory=dict)
    counts: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def import_file(path: Path, name: str, checkpoint: str, declarations: Declarations) -> ImportResult:
    """Imports a config.json, a table or a log, whichever it is. Raises OSError.

    `checkpoint` is the model's, empty where the config names it. What shapes of `declarations` declare is not repeated.
    """
    base = path.name.lower()
    if base.endswith(_BY_PRODUCTS) or base.startswith("profile_"):
        return ImportResult(findings=(Finding(NOT_A_SOURCE, Place(name), "a backup or profile by its name"),))
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    if head.lstrip().startswith(b"{"):
        return _import_config(path.read_bytes(), name, checkpoint)
    columns = set(head.partition(b"\n")[0].decode("utf-8", "replace").strip("\ufeff\r").split(","))
    if {"token", "model_dim"} <= columns:
        return _import_table(read_table(path, name), path.name, declarations)
    return _import_log(path, name, declarations)


def _import_config(content: bytes, name: str, checkpoint: str) -> ImportResult:
    facts, findings = read_config(content, name)
    if facts is None:
        return ImportResult(findings=tuple(findings))
    checkpoint = checkpoint or facts.checkpoint
    if not checkpoint:
        return ImportResult(findings=(*findings, Finding(NO_CHECKPOINT, Place(name), "no `_name_or_path` is stated")))
    identity = model_id(checkpoint)
    title = checkpoint.rstrip("/").rpartition("/")[2]
    text = model_text(title, checkpoint, "config.json of the checkpoint", facts_of(facts.block))
    target = f"models/{identity}.yaml"
    document, wrong = parse_document(text.encode(), target)
    if document:
        wrong += read_model(identity, document)[1]
    found = (*findings, *wrong)
    return ImportResult({} if has_errors(found) else {target: text}, (), found)


def _import_table(table: Table, csv: str, declarations: Declarations) -> ImportResult:
    tuned = table.kind is Kind.TUNED
    wanted: list[Wanted] = []
    for line in table.lines:
        key = key_of(table, line) if tuned else None
        shape = shape_of(table, line)
        if shape:
            spelling = table.cell(line, "q_type") if "q_type" in table.index else ""
            respelled = spelling if spelling != canonical_cell(table, line, "q_type") else ""
            wanted.append(Wanted(shape, (key.gfx, key.cu_num) if key else None, table.place(line), respelled))
    about_rows = [f for f in table.findings if f.place.line == 1 or not _is_read(table, f)]
    if not wanted:
        nothing = Finding(NOTHING_TO_IMPORT, Place(table.name), "no row of the table can be read")
        return ImportResult(findings=(*about_rows, nothing))
    name = "" if tuned else csv
    files, findings = draft_shapes(wanted, name, f"Imported from {csv}.", declarations)
    counts = () if files or findings else (_all_declared(wanted, csv, declarations),)
    return ImportResult(files, counts, (*about_rows, *findings))


def _all_declared(wanted: Sequence[Wanted], csv: str, declarations: Declarations) -> str:
    asked = {(item.row, item.device) for item in wanted}
    by = dict.fromkeys(
        row.use.deployment
        for row in declarations.rows
        if (row.csv == csv and (row.row, None) in asked)
        or any((row.row, (gpu.gfx, gpu.cu_num)) in asked for gpu in row.gpus)
    )
    return f"all of its rows ({len(wanted)}) are declared already, by {', '.join(by)}"


def _is_read(table: Table, finding: Finding) -> bool:
    """Whether the finding's line has a shape all the same: faults of times and kernels are not this command's."""
    return any(line.number == finding.place.line and shape_of(table, line) for line in table.lines)


def _import_log(path: Path, name: str, declarations: Declarations) -> ImportResult:
    misses: Counter[Key] = Counter()
    places: dict[Key, Place] = {}
    findings: list[Finding] = []
    hits = unreadable = 0
    for number, text in _lines(path):
        lookup = parse_log_line(text)
        if isinstance(lookup, str):
            unreadable += 1
            if unreadable <= _MAX_UNREADABLE:
                findings.append(Finding(UNREADABLE_LOG_LINE, Place(name, number), lookup))
        elif isinstance(lookup, Lookup) and lookup.missed:
            misses[lookup.key] += 1
            places.setdefault(lookup.key, Place(name, number))
        elif lookup:
            hits += 1
    if unreadable > _MAX_UNREADABLE:
        more = f"{unreadable - _MAX_UNREADABLE} more lines about lookups cannot be read"
        findings.append(Finding(UNREADABLE_LOG_LINE, Place(name), more))
    if not misses:
        if hits:
            return ImportResult(counts=(f"no lookup in it missed ({hits} found a row)",), findings=tuple(findings))
        nothing = Finding(NOTHING_TO_IMPORT, Place(name), "no line tells of a lookup that missed")
        return ImportResult(findings=(*findings, nothing))
    wanted = [Wanted(key.shape, (key.gfx, key.cu_num), places[key], count=misses[key]) for key in sorted(misses)]
    files, wrong = draft_shapes(wanted, "", f"Imported from {path.name}: lookups that found no row.", declarations)
    return ImportResult(files, tuple(_counts(misses, declarations)), (*findings, *wrong))


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines about lookups with their numbers. A log may be larger than memory."""
    mark = MARK.encode()
    with path.open("rb") as stream:
        for number, line in enumerate(iter(lambda: stream.readline(_MAX_LINE), b""), 1):
            if mark in line:
                yield number, line.decode("utf-8", "replace")


def _counts(misses: Counter[Key], declarations: Declarations) -> Iterator[str]:
    """A line a key, the most missed first: a shape that is declared and has no tuned row is a gap all the same."""
    for key, count in sorted(misses.items(), key=lambda item: (-item[1], item[0])):
        declared = declarations.of(key)
        by = f"declared by {declared[0].use.deployment}, but serving has no row" if declared else "not declared"
        yield f"{count:6} × {key}: {by}"
