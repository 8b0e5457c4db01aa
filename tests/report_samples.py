"""Repositories with records for tests of reports: what is in a record is made up, its form is the schema's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from branches import git
from moeshapes.claim import judged_uses
from moeshapes.record import RECORDS
from moeshapes.record_name import file_name, folder_name
from moeshapes.repository import load_declarations
from moeshapes.row import TunedRow
from moeshapes.table import read_table, read_tuned_rows
from moeshapes.use import Use
from small_repository import TABLE, tuned_line, write_small_repository
from table_text import text, write

MI355X = {"kind": "gpu", "gfx": "gfx950", "cu_num": 256, "board": "MI355X", "memory": 1 << 38, "driver": "6.14"}
FASTER, SLOWER, SAME = 0.88, 1.07, 1.0
BASELINE = {"over_limit": 0.45, "launched": ["moe_ck2stages_gemm1"], "deterministic": False}
DIGEST = "0123456789abcdef0123"
VERSIONS = {"aiter": "e4048607a5", "torch": "2.9.0", "triton": "3.6.0", "moeshapes": "0.1", "verifier": DIGEST}


def one_pass(ratio: float, us: float = 30.0, margin: float = 0.002) -> dict[str, Any]:
    verdict = "faster" if ratio < 0.99 else "slower" if ratio > 1.01 else "same"
    return {
        "verdict": verdict,
        "ratio": ratio,
        "low": ratio - margin,
        "high": ratio + margin,
        "ratios": [ratio - margin / 2, ratio, ratio + margin / 2],
        "us": us,
        "other_us": us / ratio,
        "dropped": 0,
        "clock_mhz": [2095.0, 2100.0],
        "seconds": 0.4,
    }


def speed(ratio: float, us: float = 30.0, replaced: float | None = None) -> dict[str, Any]:
    """A row that takes `ratio` of its baseline's time, and `replaced` of that of the row before it."""
    others = {"baseline": ratio, **({} if replaced is None else {"replaced": replaced})}
    comparisons = [
        {
            "against": against,
            "launched": ["moe_ck2stages_gemm1", "moe_ck2stages_gemm2"],
            "verdict": one_pass(other)["verdict"],
            "passes": [one_pass(other, us), one_pass(other * 1.001, us)],
        }
        for against, other in others.items()
    ]
    noise = [one_pass(1.0006, us), one_pass(0.9998, us)]
    verdict = comparisons[-1]["verdict"]
    return {
        "protocol": 1,
        "tokens": 8,
        "calls": 10,
        "reuse_bytes": 600 << 20,
        "verdict": verdict,
        "comparisons": comparisons,
        "noise": noise,
    }


def record(row: TunedRow, use: Use, timed: Mapping[str, Any] | None = None, **count: object) -> dict[str, Any]:
    """A record of a row that passed on its own GPU, but for what is given of its token counts."""
    seen = {"runs": 10, "over_limit": 0.41, "block_over_limit": 0.3, "worst_token": 0, "bad_values": 0, "floor": 0.1}
    arithmetic = {"block_m": 16, "intermediate_from": "fp32", "fused_scale": False, "combine": "atomic"}
    failed = bool(count.get("bad_values"))
    return {
        "format": 1,
        "job": DIGEST,
        "status": "fail" if failed else "proven",
        "reasons": ["NaN in 3 of 10 runs at 8 tokens"] if failed else [],
        "key": {"gfx": row.key.gfx, "cu_num": row.key.cu_num, **vars(row.key.shape)},
        "launch": row.launch(),
        "use": use.as_json() | {"id": use.id},
        "backend": "production",
        "device": MI355X,
        "versions": VERSIONS,
        "seed": 7,
        "numerics": {
            "protocol": 1,
            "compared_with": "modelled",
            "arithmetic": {**arithmetic, "slot_fp8_block": 0, "modelled": True, "departures": []},
            "counts": {str(row.key.shape.token): {**seen, "deterministic": True, "spread": 0.0, **count}},
            "stages": {},
            "probes": {"probed": 1, "pairs": 2, "share": 0.5},
            "weight_sets": 8,
            "baseline": {**BASELINE, "bitwise_equal": False},
        },
        "speed": timed,
        "launched": [row.kernel1, row.kernel2],
        "time": "2026-11-30T04:00:00+00:00",
    }


def rows_of(root: Path, table: str = TABLE) -> list[TunedRow]:
    return read_tuned_rows(read_table(root / table, table))


def save(root: Path, row: TunedRow, timed: Mapping[str, Any] | None = None, **count: object) -> Iterator[Path]:
    """Writes an attested record of the row under each of its uses."""
    for use in judged_uses(row, load_declarations(root)[0]):
        path = root / RECORDS / folder_name(row.place.file) / file_name(row.key, row.launch(), use)
        yield write(path, json.dumps(record(row, use, timed, **count)).encode())


SK = "flydsl_mxmoe_g1_a4w4_16x256x256_f16in_nt_sk2"


def pull_request(root: Path) -> Path:
    """A branch that adds, changes, measures again and removes a row of a small repository, with records of some."""
    write_small_repository(root, *(tuned_line(token) for token in (1, 2, 4, 16)))
    git(root, "init", "--quiet")
    _commit(root)
    git(root, "checkout", "--quiet", "-b", "topic")
    lines = (
        tuned_line(1, kernelName1=SK, us="55.5"),
        tuned_line(2, us="59.5"),
        tuned_line(8),
        tuned_line(32),
        tuned_line(64),
    )
    write(root / TABLE, text(*lines))
    slower, faster, broken, _ = (rows_of(root)[index] for index in (0, 2, 3, 4))
    list(save(root, slower, speed(FASTER, 44.0, replaced=SLOWER), deterministic=False, spread=0.2))
    list(save(root, faster, speed(FASTER)))
    list(save(root, broken, bad_values=12, over_limit="inf", block_over_limit="inf"))
    _commit(root)
    return root


def _commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a tree")
