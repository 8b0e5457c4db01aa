"""A repository whose layers take a moment each to verify: one model, one shape, one tuned table."""

from __future__ import annotations

from pathlib import Path

from declared import write_repository
from jobs import MXMOE
from moeshapes.row import TunedRow
from table_text import line, row, text, write

MODEL = """\
name: Tiny
checkpoint: example/tiny
blocks:
  target: {hidden_size: 256, moe_intermediate_size: 512, n_routed_experts: 8, num_experts_per_tok: 2,
           n_shared_experts: 0, activation: silu}
"""
LIMITED_MODEL = MODEL.replace("activation: silu", "activation: silu, swiglu_limit: 2")
SHAPE = """\
model: tiny
tp: 2
csv: tiny_untuned_fmoe.csv
gpus: [{gfx: gfx950, cu_num: 256}]
recipe: a4w4
moe:
  - {block: target, tokens: [1, 8]}
"""
TABLE = "generated/aiter/configs/model_configs/tiny_tuned_fmoe.csv"


def tuned_cells(token: int = 8, **cells: str) -> dict[str, str]:
    """Cells of a row of the shape, whose kernels ignore a limit."""
    own = {
        "token": str(token),
        "model_dim": "256",
        "inter_dim": "256",
        "expert": "8",
        "topk": "2",
        "q_dtype_a": "torch.float4_e2m1fn_x2",
        "block_m": "16",
        "kernelName1": MXMOE[0],
        "kernelName2": MXMOE[1],
    }
    return {**own, **cells}


def tuned_line(token: int = 8, **cells: str) -> str:
    return line(**tuned_cells(token, **cells))


def tuned_row(token: int = 8, **cells: str) -> TunedRow:
    return row(**tuned_cells(token, **cells))


def write_small_repository(root: Path, *lines: str, model: str = MODEL) -> Path:
    """Models, shapes and, where there are lines, a tuned table; derived files are not there."""
    write_repository(root, {"tiny/tp2": SHAPE}, {"tiny": model})
    if lines:
        write(root / TABLE, text(*lines))
    return root
