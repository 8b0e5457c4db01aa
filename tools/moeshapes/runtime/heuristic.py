"""What AITER chooses where no tuned row decides: one or two stages, block_m, split-K, load hints (contract 3.6)."""

from __future__ import annotations

from dataclasses import dataclass

from moeshapes.recipe import Format, QType
from moeshapes.runtime.call import RuntimeCall

ONE_STAGE_BLOCK_M = 32
_TILE_N = 128
_BLOCK_SIZES = (32, 64, 128)
_SPLIT_K_STEP = 256

_B, _8, _4, _I8, _I4 = Format.BF16, Format.FP8, Format.FP4, Format.INT8, Format.INT4
_ONE_STAGE: dict[str, frozenset[tuple[str, QType, Format, Format, bool, bool]]] = {
    "gfx942": frozenset(
        {
            ("silu", QType.NO, _B, _B, False, False),
            ("gelu", QType.PER_TOKEN, _8, _I4, True, False),
            ("silu", QType.PER_1X32, _4, _4, True, False),
            ("silu", QType.PER_TOKEN, _I8, _I8, True, False),
            ("gelu", QType.PER_TOKEN, _I8, _I8, True, False),
            ("silu", QType.PER_TOKEN, _8, _8, True, False),
            ("gelu", QType.PER_TOKEN, _8, _8, True, False),
            ("silu", QType.PER_1X128, _8, _8, True, False),
            ("silu", QType.PER_TOKEN, _I8, _I8, False, False),
            ("gelu", QType.PER_TOKEN, _I8, _I8, False, False),
        }
    ),
    "gfx950": frozenset(
        {
            ("silu", QType.PER_1X32, _4, _4, True, False),
            ("silu", QType.PER_1X128, _8, _8, True, False),
            ("gelu", QType.PER_1X128, _8, _8, True, False),
            ("silu", QType.PER_TOKEN, _B, _B, False, False),
            ("silu", QType.PER_TOKEN, _8, _8, True, True),
            ("silu", QType.PER_TOKEN, _8, _8, True, False),
            ("gelu", QType.PER_TOKEN, _8, _8, True, False),
        }
    ),
}
"""What has a one-stage kernel: activation, quantisation, formats, gate and up both in w1, routing weight in stage 1."""


@dataclass(frozen=True)
class Heuristic:
    """AITER's own choice, as it logs it. `m_per_expert` is the mean number of slots an expert."""

    one_stage: bool
    block_m: int
    ksplit: int
    non_temporal: bool
    m_per_expert: int

    def __str__(self) -> str:
        return (
            f"run_1stage {self.one_stage}, block_m {self.block_m}, ksplit {self.ksplit},"
            f" use_nt {self.non_temporal}, estimated m per expert {self.m_per_expert}"
        )


def choose_heuristic(call: RuntimeCall) -> Heuristic:
    """What AITER chooses for the padded token count of a call."""
    one_stage = _one_stage(call)
    per_expert = call.bucket * call.topk // call.expert
    splits = call.q_type in (QType.PER_1X128, QType.PER_1X32) and not one_stage
    return Heuristic(
        one_stage=one_stage,
        block_m=ONE_STAGE_BLOCK_M if one_stage else _block_m(call),
        ksplit=split_k(call) if splits else 0,
        non_temporal=_non_temporal(call, per_expert),
        m_per_expert=per_expert,
    )


def _one_stage(call: RuntimeCall) -> bool:
    formats = (call.format.format, call.weight, call.use_g1u1, call.doweight_stage1)
    if (call.activation, call.q_type, *formats) not in _ONE_STAGE.get(call.gfx, frozenset()):
        return False
    token, whole_blocks = call.bucket, call.inter_dim % _TILE_N == 0
    if call.q_type is QType.PER_1X128:
        return token > 32 and whole_blocks
    if call.q_type is QType.PER_TOKEN and call.weight is Format.INT8:
        return token > 32
    if call.q_type is QType.PER_TOKEN and call.weight is Format.FP8:
        return token > 16 or not whole_blocks
    return call.q_type is not QType.PER_1X32 and token < 256


def _block_m(call: RuntimeCall) -> int:
    if call.q_type is QType.PER_1X128:
        return 64 if call.bucket > 32 else 16
    return best_block_m(call)


def best_block_m(call: RuntimeCall) -> int:
    """The sorted block that leaves the fewest rounds of compute units, then the fewest idle ones."""
    columns = -(-call.inter_dim // _TILE_N)

    def cost(block: int) -> tuple[int, int]:
        padded = call.bucket * call.topk + call.expert * block - call.topk
        groups = columns * (padded + block - 1) // block
        return -(-groups // call.cu_num), call.cu_num - groups % call.cu_num

    return min(_BLOCK_SIZES, key=cost)


def split_k(call: RuntimeCall) -> int:
    """How many ways stage 1 splits K: none unless there are fewer tiles than compute units."""
    forced = call.number("AITER_KSPLIT", 0)
    if forced:
        return forced
    slots = call.bucket * call.topk
    groups = -(-call.inter_dim // _TILE_N) * slots
    if slots > call.expert or groups >= call.cu_num:
        return 0
    most = -(-call.cu_num // groups)
    return next((n for n in range(most, 1, -1) if call.model_dim % (n * _SPLIT_K_STEP) == 0), 0)


def _non_temporal(call: RuntimeCall, per_expert: int) -> bool:
    forced = call.number("AITER_USE_NT", -1)
    return bool(forced) if forced != -1 else per_expert < 64
