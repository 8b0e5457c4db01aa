"""A large pull request for timing the gate: AITER's tuned tables beside a repository's own, thousands of records.

Nothing in it was measured: the records are made up in the form of real ones, so that reading them takes what it takes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from moeshapes.claim import Claim
from moeshapes.expand import Declarations
from moeshapes.family import OWN_CONFIGS, merge_order
from moeshapes.gate.tree import read_tree
from moeshapes.repository import MODELS, SHAPES
from moeshapes.row import TunedRow
from moeshapes.rule import Severity
from moeshapes.rules import lint_rows

RECORD_FILES, NEW_ROWS = 3000, 12
BASE = "main"
_CAPTURES = 40


def write_pull_request(root: Path, configs: Path, to: Path, records: int = RECORD_FILES) -> None:
    """Makes a git repository of what `root` declares and AITER's tables in `configs`; its branch adds NEW_ROWS rows.

    Those have a record under each use, as had others before, `records` in all. A comment in a shape file changes too:
    what the base declared has to be read as well.
    """
    for folder in (MODELS, SHAPES, OWN_CONFIGS):
        if (root / folder).is_dir():
            shutil.copytree(root / folder, to / folder)
    for table in sorted(configs.rglob("*tuned_fmoe*.csv"), key=lambda path: merge_order(path.name)):
        if "untuned" not in table.name:
            copy = to / OWN_CONFIGS / table.relative_to(configs)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(table, copy)
    tree = read_tree(to)
    added = list(islice(_sound(tree.rows, tree.declarations), NEW_ROWS))
    claims = [claim for row, claims in tree.claims.items() if row not in added for claim in claims]
    new = [claim for row in added for claim in tree.claims[row]]
    former = (replace(claim, row=replace(claim.row, block_m=claim.row.block_m + 1)) for claim in claims)
    lines = {row: _cut(to / row.place.file, row) for row in sorted(added, key=lambda row: -row.place.line)}
    _write_records(to, islice(chain(claims, former), records - len(new)))
    _commit(to, "init", "--quiet", "--initial-branch", BASE)
    for row, line in lines.items():
        with (to / row.place.file).open("ab") as stream:
            stream.write(line)
    _write_records(to, iter(new))
    shape = min((to / SHAPES).rglob("*.yaml"))
    shape.write_bytes(shape.read_bytes() + b"# a comment\n")
    _commit(to, "checkout", "--quiet", "-b", "change")


def _sound(rows: tuple[TunedRow, ...], declared: Declarations) -> Iterator[TunedRow]:
    """Declared rows that lint has no error about."""
    faulty = {finding.place for finding in lint_rows(rows, declared) if finding.rule.severity is Severity.ERROR}
    return (row for row in rows if row.place not in faulty and declared.uses_of(row))


def _cut(table: Path, row: TunedRow) -> bytes:
    """Takes a row's line out of its table."""
    lines = table.read_bytes().splitlines(keepends=True)
    line = lines.pop(row.place.line - 1)
    table.write_bytes(b"".join(lines))
    return line if line.endswith(b"\n") else line + b"\n"


def _commit(root: Path, *first: str) -> None:
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.invalid", "-c", "gc.auto=0")
    for command in (first, ("add", "--all"), ("commit", "--quiet", "--message", "bench")):
        subprocess.run(["git", *who, *command], cwd=root, check=True, capture_output=True)


def _write_records(root: Path, claims: Iterator[Claim]) -> None:
    for claim in claims:
        path = root / claim.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_record(claim), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _record(claim: Claim) -> Mapping[str, Any]:
    row, use = claim.row, claim.use
    device = {"kind": "gpu", "gfx": row.key.gfx, "cu_num": row.key.cu_num}
    return {
        "format": 1,
        "job": "0" * 20,
        "status": "proven",
        "reasons": [],
        "key": {"gfx": row.key.gfx, "cu_num": row.key.cu_num, **vars(row.key.shape)},
        "launch": row.launch(),
        "use": use.as_json() | {"id": use.id},
        "backend": "production",
        "device": {**device, "board": "made up", "memory": 1 << 38, "driver": "made up"},
        "versions": {"torch": "made up", "aiter": "made up", "moeshapes": "made up", "verifier": "0" * 20},
        "seed": 0,
        "numerics": _numerics(row),
        "speed": _speed(row),
        "launched": [row.kernel1 or "made up"],
        "time": "2026-01-01T00:00:00+00:00",
    }


def _numerics(row: TunedRow) -> Mapping[str, Any]:
    count = {"runs": 10, "over_limit": 0.4, "block_over_limit": 0.3, "worst_token": 0, "bad_values": 0, "floor": 0.1}
    arithmetic = {"block_m": row.block_m or 1, "intermediate_from": "fp32", "fused_scale": False, "combine": "atomic"}
    return {
        "protocol": 1,
        "compared_with": "modelled",
        "arithmetic": {**arithmetic, "slot_fp8_block": 0, "modelled": True, "departures": []},
        "counts": {str(tokens): {**count, "deterministic": True, "spread": 0.0} for tokens in range(1, 4)},
        "stages": {},
        "probes": {"probed": 1, "pairs": 2, "share": 0.5},
        "weight_sets": 1,
        "baseline": {"over_limit": 0.4, "launched": ["made up"], "bitwise_equal": False},
    }


def _speed(row: TunedRow) -> Mapping[str, Any]:
    times = {"us": row.us, "other_us": row.us, "dropped": 0, "clock_mhz": [2000.0, 2100.0], "seconds": 1.0}
    one = {"verdict": "same", "ratio": 1.0, "low": 0.999, "high": 1.001, "ratios": [1.0] * _CAPTURES, **times}
    comparison = {"against": "baseline", "launched": ["made up"], "verdict": "same", "passes": [one, one]}
    facts = {"protocol": 1, "tokens": row.key.shape.token, "calls": 10, "reuse_bytes": 1 << 30, "verdict": "same"}
    return {**facts, "comparisons": [comparison], "noise": [one, one]}
