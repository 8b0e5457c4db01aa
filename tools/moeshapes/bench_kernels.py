"""How near the portable kernels of shipped rows get to the machine: its memory, its upcasting alone, its matmul."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch import Tensor

from moeshapes.backends.portable.backend import PortableBackend, PortableLayer
from moeshapes.problem import problem_of
from moeshapes.quant import Quantised
from moeshapes.recipe import Format, QType
from moeshapes.repository import load_declarations
from moeshapes.row import TunedRow
from moeshapes.verify.capture import GpuLab
from moeshapes.verify.gpus import describe
from moeshapes.verify.job import EVERY_EXPERT
from moeshapes.verify.speed import CALLS, expert_bytes, serving_calls, warm_up
from moeshapes.verify.subjects import shipped_rows
from moeshapes.workload import Call, Layer, draw_layer

SEED = 1
KERNEL_HEADERS = (
    "row", "tokens", "time", "weights read", "of copying", "of loading and upcasting", "arithmetic", "of matmul",
)  # fmt: skip
_COPIED = 1 << 31
_MATMUL = 8192
_ROWS_TILE = 32


@triton.jit  # type: ignore[untyped-decorator]
def load_and_upcast(w, scales, out, experts, rows, width, ROWS: tl.constexpr, BYTES: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Reads the fp4 weights of some experts and upcasts them to bf16 times their scales; adds them up, to keep them.

    w: uint8 `[E, rows, width]`; scales: e8m0 `[E, rows, width / 16]`; out: bf16, of which nothing is ever written.
    """
    expert = tl.load(experts + tl.program_id(0)).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    at = w + (expert * rows + row)[:, None] * width + tl.arange(0, BYTES)[None, :]
    scale_at = scales + (expert * rows + row)[:, None] * (width // 16) + tl.arange(0, BYTES // 16)[None, :]
    total = tl.zeros((ROWS, BYTES // 16, 16), tl.bfloat16)
    for _ in range(0, width, BYTES):
        codes = tl.load(at)
        scale = (tl.load(scale_at).to(tl.uint16) << 7).to(tl.bfloat16, bitcast=True)[:, :, None]
        low, high = tl.inline_asm_elementwise(
            """{
            .reg .b32 t0, t1, u, v, m; mov.b32 m, 0x7E807E80;
            prmt.b32 t0, $4, 0, 0x1404; prmt.b32 t1, $4, 0, 0x3424;
            shl.b32 u, t0, 4; and.b32 v, u, 0x80008000; shr.u32 u, u, 6; lop3.b32 v, u, 0x01C001C0, v, 0xEA;
            mul.bf16x2 $0, v, m;
            shl.b32 u, t1, 4; and.b32 v, u, 0x80008000; shr.u32 u, u, 6; lop3.b32 v, u, 0x01C001C0, v, 0xEA;
            mul.bf16x2 $1, v, m;
            and.b32 v, t0, 0x80008000; shr.u32 u, t0, 6; lop3.b32 v, u, 0x01C001C0, v, 0xEA; mul.bf16x2 $2, v, m;
            and.b32 v, t1, 0x80008000; shr.u32 u, t1, 6; lop3.b32 v, u, 0x01C001C0, v, 0xEA; mul.bf16x2 $3, v, m;
            }""",
            "=r,=r,=r,=r,r", [codes], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4,
        )  # fmt: skip
        total += tl.reshape(low, (ROWS, BYTES // 16, 16)) * scale + tl.reshape(high, (ROWS, BYTES // 16, 16)) * scale
        at += BYTES
        scale_at += BYTES // 16
    everything = tl.reshape(total, (ROWS, BYTES))
    tl.store(out + row[:, None] * BYTES + tl.arange(0, BYTES)[None, :], everything, everything == 12345.0)


def kernel_rows(root: Path) -> list[list[str]]:
    """Rows of KERNEL_HEADERS, for each shipped row that is for the GPU that is here."""
    gpu = describe(torch.cuda.current_device())
    copied, matmul = _copy_rate(), _matmul_rate()
    declarations, _ = load_declarations(root)
    found, layers = [], dict[str, tuple[Layer, PortableLayer]]()
    for row in shipped_rows(root):
        if not row.is_portable or (row.key.gfx, row.key.cu_num) != (gpu.gfx, gpu.cu_num):
            continue
        use = declarations.uses_of(row)[0]
        if use.id not in layers:
            layers.clear()
            layer = draw_layer(problem_of(row.key, use), SEED, torch.device("cuda"), max_elements=EVERY_EXPERT)
            layers[use.id] = layer, PortableBackend().prepare(layer)
        found.append(_measured(row, use.id, *layers[use.id], copied, matmul))
    return found


def _measured(
    row: TunedRow, use: str, layer: Layer, prepared: PortableLayer, copied: float, matmul: float
) -> list[str]:
    problem, tokens = layer.problem, row.key.shape.token
    calls = serving_calls(layer, tokens, SEED)
    us = _call_us(prepared, row, calls)
    hit = statistics.fmean(len(call.topk_ids.unique()) for call in calls)
    read = hit * expert_bytes(layer)
    flop = 6.0 * tokens * problem.topk * problem.model_dim * problem.inter_dim
    upcast = ""
    if problem.recipe.w is Format.FP4 and problem.recipe.q_type is QType.PER_1X32:
        upcast = f"{100 * _upcast_us(prepared, calls[0]) * hit / len(calls[0].topk_ids.unique()) / us:.0f} %"
    return [
        f"{use} {problem.recipe.name}",
        str(tokens),
        f"{us:.1f} µs",
        f"{read / us / 1e6:.2f} TB/s",
        f"{100 * read / us / 1e6 / copied:.0f} %",
        upcast,
        f"{flop / us / 1e6:.0f} TFLOP/s",
        f"{100 * flop / us / 1e6 / matmul:.0f} %",
    ]


def _call_us(prepared: PortableLayer, row: TunedRow, calls: list[Call]) -> float:
    runs = [(prepared.arm(row.launch(), row.key.shape.token), call) for call in calls]
    warm_up([runs])
    lab = GpuLab([runs], SEED)
    graphs = [lab.capture(0) for _ in range(5)]
    times = [statistics.median(graph.replay_us() for _ in range(10)) for graph in graphs]
    lab.release()
    return statistics.median(times) / CALLS


def _upcast_us(prepared: PortableLayer, call: Call) -> float:
    """The least time in which the weights of the experts that a call hits are read and upcast, both stages."""
    hit = prepared.layer.set_of[call.topk_ids.unique().long()].int()
    return sum(
        min(_upcast_weight_us(weight, hit, bytes_tile) for bytes_tile in _fitting(weight))
        for weight in (prepared.w1, prepared.w2)
    )


def _fitting(weight: Quantised) -> list[int]:
    width = weight.codes.shape[2]
    return [tile for tile in (512, 256, 128, 64, 32, 16) if width % tile == 0][:3]


def _upcast_weight_us(weight: Quantised, hit: Tensor, bytes_tile: int) -> float:
    _, rows, width = weight.codes.shape
    out = torch.empty((rows, bytes_tile), dtype=torch.bfloat16, device=hit.device)
    grid = (hit.numel(), rows // _ROWS_TILE)
    return _time(
        lambda: load_and_upcast[grid](
            weight.codes, weight.scales, out, hit, rows, width, ROWS=_ROWS_TILE, BYTES=bytes_tile
        )
    )


def _copy_rate() -> float:
    """Bytes read and written by a copy, TB/s."""
    source = torch.zeros(_COPIED, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * _COPIED / _time(lambda: target.copy_(source)) / 1e6


def _matmul_rate() -> float:
    """bf16, TFLOP/s."""
    a = torch.randn((_MATMUL, _MATMUL), dtype=torch.bfloat16, device="cuda")
    return 2 * float(_MATMUL) ** 3 / _time(lambda: a @ a) / 1e6


def _time(work: Callable[[], object], repeats: int = 20) -> float:
    """Median µs, the clocks up."""
    for _ in range(5):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(repeats):
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(1e3 * float(begin.elapsed_time(end)))
    return statistics.median(times)
