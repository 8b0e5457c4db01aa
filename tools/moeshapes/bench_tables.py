"""How long commands take over tables: a repository's own, AITER's, and more tuned rows than any repository has.

The synthetic tables stand in a checkout below a temporary directory as AITER lays them out: its tuner's header, the
buckets of many layers, kernel names of its commonest families, every time another. No two rows have the same key.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

from moeshapes.adopt import FULL_HEADER
from moeshapes.bench_gate import BASE, RECORD_FILES, write_pull_request
from moeshapes.cold_start import ColdStart, cold_start
from moeshapes.dispatch import BUCKETS

ROWS, FILES = 100_000, 400
SIZES = (ROWS // 4, ROWS // 2, ROWS)
HEADERS = (
    *("command", "tables", "median", "least", "most", "processor"),
    *("over start-up", "a row, over the fewest rows", "peak memory"),
)
_MODEL_DIMS = range(2048, 10240, 512)
_INTER_DIMS = range(128, 4224, 256)
_EXPERTS = ((257, 9), (256, 8), (128, 8), (385, 7), (384, 6), (513, 11), (161, 7), (33, 9))
_FORMATS = (
    ("torch.float8_e4m3fn", "torch.float4_e2m1fn_x2", "QuantType.per_1x32"),
    ("torch.float4_e2m1fn_x2", "torch.float4_e2m1fn_x2", "QuantType.per_1x32"),
    ("torch.float8_e4m3fn", "torch.float8_e4m3fn", "QuantType.per_1x128"),
)


def write_tables(checkout: Path, rows: int = ROWS, files: int = FILES) -> None:
    """Writes that many tuned rows, spread over that many tables, into a checkout; the same ones each time."""
    folder = checkout / "aiter" / "configs" / "model_configs"
    folder.mkdir(parents=True)
    lines = list(islice(_lines(random.Random(0)), rows))
    for number in range(files):
        own = lines[number * rows // files : (number + 1) * rows // files]
        text = "\n".join([",".join(FULL_HEADER), *own, ""])
        (folder / f"synthetic_{number}_tuned_fmoe.csv").write_text(text, encoding="utf-8")


def _lines(draw: random.Random) -> Iterator[str]:
    shapes = product(_FORMATS, _EXPERTS, _MODEL_DIMS, _INTER_DIMS, BUCKETS)
    for (a, w, q_type), (expert, topk), model_dim, inter_dim, token in shapes:
        us1, us2 = round(draw.uniform(10, 900), 4), round(draw.uniform(10, 900), 4)
        tile = draw.choice(("32x128x256", "64x128x256", "128x256x256"))
        shape = (token, model_dim, inter_dim, expert, topk, "ActivationType.Silu", "torch.bfloat16", a, w, q_type, 1, 0)
        stage1 = (us1, f"flydsl_moe1_afp8_wfp4_bf16_t{tile}_w2_gui_fp8", f"{draw.uniform(0, 2):.1f}%")
        stage2 = (us2, f"flydsl_moe2_afp8_wfp4_bf16_t{tile}_atomic", f"{draw.uniform(0, 2):.1f}%")
        times = (round(us1 + us2, 4), 0, 0, 0, round(draw.uniform(1, 900), 2), round(draw.uniform(100, 6000), 2))
        yield ",".join(map(str, ("gfx950", 256, *shape, tile.partition("x")[0], 0, *stage1, *stage2, *times, "")))


@dataclass(frozen=True)
class Figure:
    """One command's cold process over some tables. `rows` is 0 where growth with rows is not the question."""

    command: str
    tables: str
    start: ColdStart
    rows: int = 0


def figures(root: Path, configs: Path | None = None) -> Iterator[Figure]:
    """Measures start-up alone, the repository's commands, those over AITER's tables in `configs`, and synthetic ones.

    `root` is the top of a repository of shapes. Takes about a minute.
    """
    yield Figure("--help", "none", cold_start(["--help"], root))
    yield Figure("keys", "this repository's", cold_start(["keys"], root))
    if configs:
        yield Figure("keys --aiter", "AITER's", cold_start(["keys", "--aiter", str(configs.absolute())], root))
    yield Figure("generate --check", "this repository's", cold_start(["generate", "--check"], root))
    yield Figure("check", "this repository's", cold_start(["check"], root))
    if configs:
        yield _gate(root, configs.absolute())
    for rows in SIZES:
        with tempfile.TemporaryDirectory() as directory:
            write_tables(Path(directory), rows)
            yield Figure("keys", f"{rows:,} rows in {FILES}", cold_start(["keys"], Path(directory)), rows)


def _gate(root: Path, configs: Path) -> Figure:
    """The gate on a pull request over all of AITER's rows and this repository's, and thousands of records."""
    with tempfile.TemporaryDirectory() as directory:
        write_pull_request(root, configs, Path(directory))
        start = cold_start(["gate", "--base", BASE, "--aiter", str(configs)], Path(directory))
    return Figure("gate --aiter", f"both, {RECORD_FILES:,} records", start)


def count(configs: Path | None) -> int:
    """How many figures there are."""
    return 4 + 2 * (configs is not None) + len(SIZES)


def table_rows(measured: Sequence[Figure]) -> list[tuple[str, ...]]:
    """The figures as cells under HEADERS: times, their ratios to start-up alone, and how the time a row grows."""
    start_up = measured[0].start.median
    a_row = {figure.rows: (figure.start.median - start_up) / figure.rows for figure in measured if figure.rows}
    fewest = min(a_row, default=0)
    return [
        (
            f"moeshapes {figure.command}",
            figure.tables,
            *(f"{seconds:.2f} s" for seconds in _seconds(figure.start)),
            f"{figure.start.median / start_up:.1f} x",
            f"{a_row[figure.rows] / a_row[fewest]:.2f} x" if figure.rows else "",
            f"{figure.start.peak_mib:.0f} MiB",
        )
        for figure in measured
    ]


def _seconds(start: ColdStart) -> tuple[float, ...]:
    return start.median, start.least, start.most, start.processor
