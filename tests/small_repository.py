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
PORTABLE_SHAPE = SHAPE.replace("tiny_untuned", "triton_tiny_untuned").replace(
    "[{gfx: gfx950, cu_num: 256}]", "[{gfx: gfx950, cu_num: 256}, {gfx: sm_90, cu_num: 132}]"
)
PORTABLE_TABLE = "generated/triton/triton_tiny_tuned_fmoe.csv"
PORTABLE_KERNELS = tuple(
    f"triton_moe{stage}_afp4_wfp4_bf16_t16x64x128_w4_s2{mode}" for stage, mode in ((1, ""), (2, "_reduce"))
)


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


def portable_cells(token: int = 8, **cells: str) -> dict[str, str]:
    """Cells of a row of portable kernels for an H200."""
    first, second = PORTABLE_KERNELS
    own = {"gfx": "sm_90", "cu_num": "132", "kernelName1": first, "kernelName2": second}
    return tuned_cells(token, **{**own, **cells})


def portable_line(token: int = 8, **cells: str) -> str:
    return line(**portable_cells(token, **cells))


def portable_row(token: int = 8, **cells: str) -> TunedRow:
    return row(**portable_cells(token, **cells))


def tuned_row(token: int = 8, **cells: str) -> TunedRow:
    return row(**tuned_cells(token, **cells))


def write_both_backends(root: Path, *lines: str) -> Path:
    """The shape in AITER's table and in one of the portable kernels, which has the given tuned lines."""
    write_repository(root, {"tiny/tp2": SHAPE, "tiny/tp2-triton": PORTABLE_SHAPE}, {"tiny": MODEL})
    if lines:
        write(root / PORTABLE_TABLE, text(*lines))
    return root


def write_small_repository(root: Path, *lines: str, model: str = MODEL) -> Path:
    """Models, shapes and, where there are lines, a tuned table; derived files are not there."""
    write_repository(root, {"tiny/tp2": SHAPE}, {"tiny": model})
    if lines:
        write(root / TABLE, text(*lines))
    return root
