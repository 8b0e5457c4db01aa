"""What AITER chooses where no row decides (contract 3.6)."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from ..jit.utils.chip_info import get_cu_num, get_gfx
from ..ops.enum import ActivationType, QuantType
from ..utility import dtypes
from .formats import short
from .question import Question

BLOCK_SIZE_M = 32
_TILE_N = 128
_Silu, _Gelu = ActivationType.Silu, ActivationType.Gelu
_ONE_STAGE = {
    "gfx942": {
        (_Silu, QuantType.No, "bf16", False, False),
        (_Silu, QuantType.per_1x32, "fp4", True, False),
        (_Silu, QuantType.per_Token, "int8", True, False),
        (_Gelu, QuantType.per_Token, "int8", True, False),
        (_Silu, QuantType.per_Token, "fp8", True, False),
        (_Gelu, QuantType.per_Token, "fp8", True, False),
        (_Silu, QuantType.per_1x128, "fp8", True, False),
    },
    "gfx950": {
        (_Silu, QuantType.per_1x32, "fp4", True, False),
        (_Silu, QuantType.per_1x128, "fp8", True, False),
        (_Gelu, QuantType.per_1x128, "fp8", True, False),
        (_Silu, QuantType.per_Token, "fp8", True, True),
        (_Silu, QuantType.per_Token, "fp8", True, False),
        (_Gelu, QuantType.per_Token, "fp8", True, False),
    },
}
"""What has a kernel for both stages: activation, quantisation, the dtype of both operands, g1u1, weight in stage 1."""


@functools.lru_cache(maxsize=2048)
def get_block_size_M(token: int, topk: int, expert: int, inter_dim: int) -> int:  # noqa: N802 - AITER's own name
    """The sorted block of fewest rounds of compute units, then of fewest idle ones."""
    cus, columns = get_cu_num(), -(-inter_dim // _TILE_N)

    def cost(block: int) -> tuple[int, int]:
        groups = columns * (token * topk + expert * block - topk + block - 1) // block
        return -(-groups // cus), cus - groups % cus

    return min((32, 64, 128), key=cost)


@functools.lru_cache(maxsize=2048)
def use_nt(token: int, topk: int, e: int) -> bool:
    """Whether weights are loaded past the cache."""
    forced = int(os.environ.get("AITER_USE_NT", "-1"))
    return token * topk // e < 64 if forced == -1 else bool(forced)


@functools.lru_cache(maxsize=2048)
def get_ksplit(token: int, topk: int, expert: int, inter_dim: int, model_dim: int) -> int:
    """How many ways stage 1 splits K; 0 for none."""
    forced = int(os.environ.get("AITER_KSPLIT", "0"))
    groups = -(-inter_dim // _TILE_N) * token * topk
    if forced or token * topk > expert or groups >= get_cu_num():
        return forced
    most = -(-get_cu_num() // groups)
    return next((n for n in range(most, 1, -1) if model_dim % n == 0 and model_dim // n % 256 == 0), 0)


@dataclass(frozen=True)
class Chosen:
    """What a row, or AITER itself, decided. Kernel names are empty where compiled code chooses; `xbf16` and `flat` only
    matter where one kernel does both stages.
    """

    block_m: int
    ksplit: int
    kernel1: str = ""
    kernel2: str = ""
    one_stage: bool = False
    xbf16: bool = False
    flat: int = 0
    non_temporal: bool = False


def choose(q: Question) -> Chosen:
    """AITER's own choice."""
    one_stage = _one_stage(q)
    per_block = q.q_type is QuantType.per_1x128
    block = (64 if q.token > 32 else 16) if per_block else get_block_size_M(q.token, q.topk, q.expert, q.inter_dim)
    splits = not one_stage and (per_block or q.mx)
    xbf16 = one_stage and per_block and get_gfx() == "gfx950" and int(os.environ.get("AITER_XBFLOAT16", "0")) == 1
    return Chosen(
        block_m=BLOCK_SIZE_M if one_stage else block,
        ksplit=get_ksplit(q.token, q.topk, q.expert, q.inter_dim, q.model_dim) if splits else 0,
        one_stage=one_stage,
        xbf16=xbf16,
        non_temporal=use_nt(q.token, q.topk, q.expert),
    )


def _one_stage(q: Question) -> bool:
    asked = (q.activation, q.q_type, short(q.w), q.g1u1, q.doweight_stage1)
    if q.a is not q.w or asked not in _ONE_STAGE.get(get_gfx(), set()):
        return False
    if q.q_type is QuantType.per_1x128:
        return q.token > 32 and q.inter_dim % 128 == 0
    if q.q_type is QuantType.per_Token:
        return q.token > 32 if q.w is dtypes.i8 else q.token > 16 or q.inter_dim % 128 != 0
    return not q.mx and q.token < 256
