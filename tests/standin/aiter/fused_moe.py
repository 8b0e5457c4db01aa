"""AITER's fused MoE entry point, its lookup, and its process-lifetime caches."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .jit.core import AITER_CONFIGS
from .jit.utils.chip_info import get_gfx_runtime
from .jit.utils.torch_guard import operator
from .ops.enum import ActivationType, QuantType
from .ops.flydsl.moe_common import GateMode
from .standin import functions as _functions
from .standin.call import Call
from .standin.checks import refuse_what_is_not_ported
from .standin.dispatch import route
from .standin.functions import MOEMetadata
from .standin.heuristic import Chosen, choose, get_block_size_M, get_ksplit, use_nt
from .standin.launch import launch
from .standin.names import opus_block
from .standin.question import Question
from .standin.refusal import require
from .standin.settings import SETTINGS
from .standin.table import TIERS, Rows, find, load

__all__ = [
    "GateMode", "MOEMetadata", "fused_moe", "get_2stage_cfgs", "get_block_size_M", "get_inter_dim", "get_ksplit",
    "get_padded_M", "use_nt",
]  # fmt: skip

logger = logging.getLogger("aiter")

_SWIGLU_MXFP4_BF16_BOUND = int(os.environ.get("GPTOSS_SWIGLU_MXFP4_BF16_BOUND", "256"))
cfg_2stages: tuple[Rows, Rows] | None = None
kernel_bench_callable: list[tuple[str, Callable[[], Any]]] | None = None
_MAX_PLAIN_TOKENS = TIERS[0]

_flydsl_stage1_wrapper = _functions._flydsl_stage1_wrapper
_flydsl_stage2_wrapper = _functions._flydsl_stage2_wrapper
_flydsl_v2_stage2_wrapper = _functions._flydsl_v2_stage2_wrapper
_mxfp4_a4w4_stage1_fw = _functions._mxfp4_a4w4_stage1_fw
_mxfp4_a4w4_stage2_fw = _functions._mxfp4_a4w4_stage2_fw
_opus_a8w4_stage1_wrapper = _functions.opus_a8w4_stage1_wrapper
ck_moe_stage1 = _functions.ck_moe_stage1
cktile_moe_stage1 = _functions.cktile_moe_stage1
cktile_moe_stage2 = _functions.cktile_moe_stage2
asm_stage1 = _functions.asm_stage1
fused_moe_1stage = _functions.fused_moe_1stage


def fused_moe(
    hidden_states: Tensor,
    w1: Tensor,
    w2: Tensor,
    topk_weight: Tensor,
    topk_ids: Tensor,
    expert_mask: Tensor | None = None,
    activation: ActivationType = ActivationType.Silu,
    quant_type: QuantType = QuantType.No,
    doweight_stage1: bool = False,
    w1_scale: Tensor | None = None,
    w2_scale: Tensor | None = None,
    a1_scale: Tensor | None = None,
    a2_scale: Tensor | None = None,
    block_size_M: int | None = None,  # noqa: N803
    num_local_tokens: Tensor | None = None,
    moe_sorting_dispatch_policy: int = 0,
    dtype: torch.dtype | None = None,
    hidden_pad: int = 0,
    intermediate_pad: int = 0,
    bias1: Tensor | None = None,
    bias2: Tensor | None = None,
    splitk: int = 0,
    swiglu_limit: float | None = None,
    beta: float | None = None,
    linear_beta: float | None = None,
    gate_mode: str | None = GateMode.SEPARATED.value,
    shared_w1: Tensor | None = None,
    shared_w2: Tensor | None = None,
    shared_w1_scale: Tensor | None = None,
    shared_w2_scale: Tensor | None = None,
    shared_expert_id: int = -1,
    stage2_scatter: object | None = None,
) -> Tensor:
    """The layer's output, `[M, H]` in `dtype`. Raises StandinRefused for what AITER's kernels would misread."""
    call = Call(**locals())
    output: Tensor = _operator(
        hidden_states, w1, w2, topk_weight, topk_ids, expert_mask, activation.value, quant_type.value, doweight_stage1,
        w1_scale, w2_scale, block_size_M or -1, num_local_tokens, moe_sorting_dispatch_policy, dtype, hidden_pad,
        intermediate_pad, bias1, bias2, swiglu_limit, beta, linear_beta, call.gate_mode,
    )  # fmt: skip
    return output


def fused_moe_(
    hidden_states: Tensor,
    w1: Tensor,
    w2: Tensor,
    topk_weight: Tensor,
    topk_ids: Tensor,
    expert_mask: Tensor | None,
    activation: int,
    quant_type: int,
    doweight_stage1: bool,
    w1_scale: Tensor | None,
    w2_scale: Tensor | None,
    block_size_M: int,  # noqa: N803
    num_local_tokens: Tensor | None,
    moe_sorting_dispatch_policy: int,
    dtype: torch.dtype | None,
    hidden_pad: int,
    intermediate_pad: int,
    bias1: Tensor | None,
    bias2: Tensor | None,
    swiglu_limit: float | None,
    beta: float | None,
    linear_beta: float | None,
    gate_mode: str,
) -> Tensor:
    """What fused_moe does within the operator that AITER makes of it."""
    call = Call(**{**locals(), **_NOT_PASSED_ON, **_as_passed(activation, quant_type, block_size_M)})
    q = call.question(call.activation_dtype(_SWIGLU_MXFP4_BF16_BOUND), get_padded_M(call.tokens))
    refuse_what_is_not_ported(call, q.a)
    told = _ask(q)
    if getattr(told.stage2, "func", None) in (_flydsl_v2_stage2_wrapper, _mxfp4_a4w4_stage2_fw):
        _mxfp4_scale_u8(w2_scale)
    return launch(call, q.a, told, kernel_bench_callable)


@functools.lru_cache(maxsize=2048)
def _mxfp4_scale_u8(scale: Tensor | None) -> Tensor | None:
    """What FlyDSL is given of e8m0 scales. As AITER's it keeps each tensor for as long as the process lives."""
    return None if scale is None else scale.view(torch.uint8)


_operator = operator(fused_moe_)
_NOT_PASSED_ON: dict[str, Any] = {
    **dict.fromkeys(("a1_scale", "a2_scale", "shared_w1", "shared_w2", "shared_w1_scale", "shared_w2_scale")),
    "splitk": 0, "shared_expert_id": -1, "stage2_scatter": None,
}  # fmt: skip


def _as_passed(activation: int, quant_type: int, block_size_m: int) -> dict[str, Any]:
    """What an operator cannot be given as it is."""
    block = None if block_size_m == -1 else block_size_m
    return {"activation": ActivationType(activation), "quant_type": QuantType(quant_type), "block_size_M": block}


def _ask(q: Question) -> MOEMetadata:
    told = get_2stage_cfgs(
        q.token, q.model_dim, q.inter_dim, q.expert, q.topk + int(q.is_ep), q.dtype, q.a, q.w, q.q_type, q.g1u1,
        q.activation, q.doweight_stage1, q.hidden_pad, q.intermediate_pad, q.shuffled, q.gate_mode,
        is_ep=q.is_ep, has_stage2_bias=q.stage2_bias, opus_weights_shuffled=q.both_shuffled,
    )  # fmt: skip
    return route(q, choose(q)) if SETTINGS.lies_about("label") else told


@functools.lru_cache(maxsize=2048)
def get_inter_dim(w1_shape: torch.Size, w2_shape: torch.Size) -> tuple[int, int, int]:
    """Experts, model_dim and inter_dim of weights as they are stored."""
    experts, model_dim, packed = w2_shape
    return experts, model_dim, packed * (model_dim // w1_shape[-1])


def get_padded_M(M: int) -> int:  # noqa: N802, N803 - AITER's own names
    """The token count that a call looks up."""
    if _MAX_PLAIN_TOKENS <= M:
        return max(tier for tier in TIERS if tier <= M)
    return 1 << max(M - 1, 0).bit_length()


@functools.lru_cache(maxsize=2048)
def get_2stage_cfgs(
    token: int,
    model_dim: int,
    inter_dim: int,
    expert: int,
    topk: int,
    dtype: torch.dtype,
    q_dtype_a: torch.dtype,
    q_dtype_w: torch.dtype,
    q_type: QuantType,
    use_g1u1: bool,
    activation: ActivationType,
    doweight_stage1: bool,
    hidden_pad: int,
    intermediate_pad: int,
    is_shuffled: bool = True,
    gate_mode: str = GateMode.SEPARATED.value,
    is_ep: bool = False,
    has_stage2_bias: bool = False,
    opus_weights_shuffled: bool | None = None,
    config_file: str | None = None,
) -> MOEMetadata:
    """What runs for a lookup, by the tables as this process has them."""
    require(config_file is None, "get_2stage_cfgs: the stand-in has no dedicated FHMoE table")
    both = is_shuffled if opus_weights_shuffled is None else opus_weights_shuffled
    q = Question(
        token, model_dim, inter_dim, expert, topk - int(is_ep), dtype, q_dtype_a, q_dtype_w, q_type, use_g1u1,
        activation, doweight_stage1, hidden_pad, intermediate_pad, is_shuffled, GateMode(gate_mode), is_ep,
        has_stage2_bias, both,
    )  # fmt: skip
    row = _kept(q, _row_of(q))
    chosen = _chosen(q, row)
    _require_own_block(row, chosen)
    _say(q, row, chosen)
    return route(q, chosen)


def _row_of(q: Question) -> dict[str, Any] | None:
    global cfg_2stages
    require(os.environ.get("AITER_ONLINE_TUNE", "0") != "1", "AITER_ONLINE_TUNE would tune into the table in use")
    path = AITER_CONFIGS.AITER_CONFIG_FMOE_FILE
    if cfg_2stages is None:
        cfg_2stages = load(path)
    return find(cfg_2stages, q.key)


def _text(cell: object) -> str:
    return cell.strip() if isinstance(cell, str) else ""


def _kept(q: Question, row: dict[str, Any] | None) -> dict[str, Any] | None:
    """The row, None where AITER throws it away."""
    why = "" if row is None else _complaint(q, row)
    if not why:
        return row
    if not SETTINGS.lies_about("silent"):
        logger.warning("[fused_moe] %s; using default heuristics", why)
    return None


def _complaint(q: Question, row: dict[str, Any]) -> str:
    """Why AITER throws a row away, in its own words; empty where it does not (contract 3.4)."""
    names = _text(row["kernelName1"]), _text(row["kernelName2"])
    opus = any(name.startswith("opus_") for name in names)
    if SETTINGS.lies_about("discarded") or (opus and not q.both_shuffled):
        return f"discarding Opus tuned config for {q.key}: both w1 and w2 must be marked is_shuffled=True"
    if names[0].startswith("opus_") and q.activation in (ActivationType.Gelu, ActivationType.No):
        return f"discarding Opus tuned config for unsupported activation {q.activation}"
    wrong = _opus_complaint(q, names[1], int(row["block_m"])) if names[1].startswith("opus_") else ""
    return f"Opus stage2 config unsupported ({wrong})" if wrong else ""


def _opus_complaint(q: Question, name: str, block_m: int) -> str:
    wanted = opus_block(name)
    if wanted is None:
        return f"unknown Opus A8W4 stage2 kernelName2={name!r}"
    if get_gfx_runtime() != "gfx950":
        return f"requires gfx950, got {get_gfx_runtime()}"
    if q.is_ep:
        return "EP expert_mask/topk_ids are not supported"
    if q.stage2_bias:
        return "stage2 bias is not supported"
    return "" if wanted == block_m else f"requires sort block_m={wanted}, got tuned block_m={block_m}"


def _require_own_block(row: dict[str, Any] | None, c: Chosen) -> None:
    """AITER resolves an opus name even where tables are bypassed, against the block that it then chose by itself."""
    wanted = opus_block(_text(row["kernelName2"])) if row else None
    if wanted not in (None, c.block_m):
        raise ValueError(f"requires sort block_m={wanted}, got tuned block_m={c.block_m}")


def _bypassed() -> bool:
    return bool(int(os.environ.get("AITER_BYPASS_TUNE_CONFIG", "0")))


def _chosen(q: Question, row: dict[str, Any] | None) -> Chosen:
    if row is None or _bypassed():
        return choose(q)
    one_stage = bool(int(row.get("run_1stage") or 0))
    kernel1 = _text(row["kernelName1"])
    inside = one_stage and (bool(int(row["xbf16"])) if "xbf16" in row else "blockscaleBf16" in kernel1)
    return Chosen(
        block_m=int(row["block_m"]),
        ksplit=0 if os.environ.get("AITER_KSPLIT") == "-1" else int(row["ksplit"]),
        kernel1=kernel1,
        kernel2=_text(row["kernelName2"]),
        one_stage=one_stage,
        xbf16=inside,
        flat=int(row["flat"]) if one_stage and "flat" in row else 0,
    )


def _say(q: Question, row: dict[str, Any] | None, c: Chosen) -> None:
    """The log lines of a lookup, as AITER spells them (contract 3.7)."""
    if SETTINGS.lies_about("silent"):
        return
    if row is None or _bypassed():
        logger.info(
            f"run_1stage = {c.one_stage}, xbf16 = {c.xbf16}, ksplit = {c.ksplit} q_type = {q.q_type}"
            f" block_m = {c.block_m} use_nt = {c.non_temporal},"
            f" estimated_m_per_expert = {q.token * q.topk // q.expert}"
        )
    elif not q.shuffled and not c.one_stage:
        logger.warning(f"[fused_moe] tuned config found for {q.key} but is_shuffled=False.")
    # What the table holds is printed: an empty cell is nan there.
    kernelName1, kernelName2 = (  # noqa: N806 - printed under these names
        (row["kernelName1"], row["kernelName2"]) if row and not _bypassed() else ("", "")
    )
    what = "default" if row is None else f"({kernelName1=}, {kernelName2=})"
    stages = f"{'1stage' if c.one_stage else '2stage'}{' xbf16' if c.xbf16 else ''}"
    logger.info(f"[fused_moe] using {stages} {what} for {q.key} ")
