"""Texts of tables for tests: sound rows whose cells a test changes one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from moeshapes.adopt import FULL_HEADER
from moeshapes.row import UNTUNED_COLUMNS, TunedRow
from moeshapes.table import Table, parse_table, read_tuned_rows

STAGE1 = "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui_fp8"
STAGE2 = "flydsl_moe2_afp8_wfp4_bf16_t32x128x256_atomic"
CELLS = {
    "gfx": "gfx950",
    "cu_num": "256",
    "token": "8",
    "model_dim": "6144",
    "inter_dim": "512",
    "expert": "257",
    "topk": "9",
    "act_type": "ActivationType.Silu",
    "dtype": "torch.bfloat16",
    "q_dtype_a": "torch.float8_e4m3fn",
    "q_dtype_w": "torch.float4_e2m1fn_x2",
    "q_type": "QuantType.per_1x32",
    "use_g1u1": "1",
    "doweight_stage1": "0",
    "block_m": "32",
    "ksplit": "0",
    "us1": "40.5",
    "kernelName1": STAGE1,
    "err1": "0.9%",
    "us2": "20.25",
    "kernelName2": STAGE2,
    "err2": "1.4%",
    "us": "60.75",
    "run_1stage": "0",
    "xbf16": "0",
    "flat": "0",
    "tflops": "16.98",
    "bw": "2424.31",
    "_tag": "",
}


def line(header: Sequence[str] = FULL_HEADER, **cells: str) -> str:
    """A sound row, but for the cells given."""
    return ",".join({**CELLS, **cells}.get(column, "") for column in header)


def text(*lines: str, header: Sequence[str] = FULL_HEADER) -> bytes:
    return "\n".join([",".join(header), *lines, ""]).encode()


def table(*lines: str, header: Sequence[str] = FULL_HEADER, name: str = "a_tuned_fmoe.csv") -> Table:
    return parse_table(text(*lines, header=header), name)


def row(**cells: str) -> TunedRow:
    """A tuned row that can be read, with the cells given."""
    (only,) = read_tuned_rows(table(line(**cells)))
    return only


def untuned_line(**cells: str) -> str:
    return line(UNTUNED_COLUMNS, **cells)


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
