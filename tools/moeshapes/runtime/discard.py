"""Rows that AITER finds and throws away: its own choice serves the call then, never the next row (contract 3.4)."""

from __future__ import annotations

from moeshapes.kernel_name import parse
from moeshapes.row import TunedRow
from moeshapes.runtime.call import RuntimeCall

BYPASS = "AITER_BYPASS_TUNE_CONFIG"
_OPUS_ACTIVATIONS = ("silu", "swiglu", "situv2")


def discard_reason(row: TunedRow, call: RuntimeCall) -> str:
    """Why AITER does not use a row that it found; empty where it uses it."""
    first, second = row.kernel1.startswith("opus_"), row.kernel2.startswith("opus_")
    if call.number(BYPASS, 0):
        return f"{BYPASS} is {call.number(BYPASS, 0)}"
    if (first or second) and not call.shuffled:
        return "opus kernels need both weights marked is_shuffled"
    if first and call.activation not in _OPUS_ACTIVATIONS:
        return f"opus stage 1 has no {call.activation}"
    return _second_stage_reason(row, call) if second else ""


def _second_stage_reason(row: TunedRow, call: RuntimeCall) -> str:
    kernel = parse(row.kernel2)
    if kernel is None or kernel.family != "opus_moe2":
        return f"opus has no stage 2 of the name `{row.kernel2}`"
    if call.gfx != "gfx950":
        return f"opus stage 2 is for gfx950, not {call.gfx}"
    if call.expert_mask:
        return "opus stage 2 takes no expert mask"
    if call.bias:
        return "opus stage 2 takes no bias"
    if kernel.sort_block_m != row.block_m:
        return f"opus stage 2 sorts blocks of {kernel.sort_block_m}, the row says block_m {row.block_m}"
    return ""
