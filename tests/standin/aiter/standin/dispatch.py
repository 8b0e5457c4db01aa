"""From a choice to the functions that run, in AITER's order (contract 3.5)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ..ops.enum import ActivationType, QuantType
from ..ops.flydsl.moe_common import GateMode
from ..ops.flydsl.utils import is_flydsl_available
from ..utility import dtypes
from . import functions as run
from .formats import short
from .functions import MOEMetadata, Stage
from .heuristic import Chosen
from .names import mxmoe_block, parse_layout
from .question import Question
from .settings import SETTINGS

logger = logging.getLogger("aiter")


def route(q: Question, c: Chosen) -> MOEMetadata:
    """What runs for a choice."""
    if c.kernel1.startswith("flydsl_mxmoe_g") or c.kernel2.startswith("flydsl_mxmoe_g"):
        return _mxmoe(q, c)
    if c.one_stage:
        return _one_stage(q, c)
    flydsl = c.kernel1.startswith("flydsl_") or c.kernel2.startswith("flydsl_")
    if c.kernel1.startswith("opus_moe1_") or (flydsl and is_flydsl_available()):
        return _by_names(q, c)
    return _by_format(q, c)


def _by_format(q: Question, c: Chosen) -> MOEMetadata:
    """The steps that look at no FlyDSL or opus stage-1 name."""
    if q.gate_mode is not GateMode.SEPARATED and q.mx and q.swiglu and q.w is not dtypes.fp8:
        return _cktile_interleaved(q, c)
    if q.mx and q.w is dtypes.i4x2 and is_flydsl_available():
        return _int4_fallback(q)
    if _flydsl_serves(q):
        return _flydsl_fallback(q)
    bf16_swiglu = q.swiglu and q.bf16_by_fp4 and q.shuffled
    fp4_swiglu = q.swiglu and q.a is dtypes.fp4x2
    if q.mx and q.w is dtypes.fp4x2 and q.shuffled and not fp4_swiglu and (c.ksplit > 1 or bf16_swiglu):
        layout = "standard" if bf16_swiglu else "auto"
        return _cktile_split(q, max(c.ksplit, 2 if bf16_swiglu else 1), q.swiglu, post_activation_layout=layout)
    if q.swiglu and q.w is dtypes.fp4x2 and q.mx and not c.kernel1:
        return _cktile_split(q, max(c.ksplit, 2), True)
    if "ck2stages" in c.kernel1 or (not c.kernel1 and _ck_serves(q)):
        return MOEMetadata(_ck_first(q, c), _second(q, c, flydsl=True), c.block_m, c.ksplit)
    return _asm(q, c)


def _mxmoe(q: Question, c: Chosen) -> MOEMetadata:
    return MOEMetadata(
        partial(run._mxfp4_a4w4_stage1_fw, kernelName1=c.kernel1, interleave=q.gate_mode is GateMode.INTERLEAVE),
        partial(run._mxfp4_a4w4_stage2_fw, kernelName2=c.kernel2),
        mxmoe_block(c.kernel1) or c.block_m,
        c.ksplit,
        fuse_quant="fp4",
        output_aux=True,
        prequant=False,
    )


def _one_stage(q: Question, c: Chosen) -> MOEMetadata:
    stage = partial(
        run.fused_moe_1stage,
        kernelName=c.kernel1,
        activation=q.activation,
        quant_type=q.q_type,
        xbf16=c.xbf16,
        flat=c.flat,
    )
    return MOEMetadata(stage, None, c.block_m, c.ksplit, True, flat=c.flat)


# --- each stage by its name


def _by_names(q: Question, c: Chosen) -> MOEMetadata:
    with_bias = q.mx and q.w is dtypes.fp4x2
    opus, flydsl = c.kernel1.startswith("opus_moe1_"), c.kernel1.startswith("flydsl_")
    first = _opus_first(q, c) if opus else _flydsl_first(q, c.kernel1) if flydsl else _ck_first(q, c)
    tail = c.kernel1.split("_t")[-1]
    fused = "fp8" if opus or (flydsl and "_fp8" in tail) else "fp4" if flydsl and "_fp4" in tail else ""
    layout = parse_layout(c.kernel2)
    if layout:
        fused = first.keywords["out_dtype"] = layout.a
    return MOEMetadata(
        first,
        _second(q, c, flydsl=True),
        c.block_m,
        c.ksplit,
        has_bias=with_bias and (opus or flydsl),
        fuse_quant=fused,
        stage2_has_bias=with_bias and not layout and c.kernel2.startswith(("flydsl_", "cktile_")),
        skip_inter_quant="_moe2_layout_" in c.kernel2,
    )


def _opus_first(q: Question, c: Chosen) -> Stage:
    return partial(
        run.opus_a8w4_stage1_wrapper,
        kernelName=c.kernel1,
        activation=q.activation,
        block_m=c.block_m,
        inter_dim_pad=q.intermediate_pad,
    )


def _flydsl_first(q: Question, name: str) -> Stage:
    return partial(
        run._flydsl_stage1_wrapper,
        kernelName=name,
        activation=q.activation,
        inter_dim_pad=q.intermediate_pad,
        model_dim_pad=q.hidden_pad,
    )


def _ck_first(q: Question, c: Chosen) -> Stage:
    return partial(
        run.ck_moe_stage1,
        kernelName=c.kernel1,
        activation=q.activation,
        quant_type=q.q_type,
        dtype=q.dtype,
        splitk=c.ksplit,
        use_non_temporal_load=c.non_temporal,
    )


def _second(q: Question, c: Chosen, flydsl: bool) -> Stage:
    """Stage 2 by its name, CK's where it has none. `flydsl`: whether this path heeds FlyDSL names."""
    pads = {"inter_dim_pad": q.intermediate_pad, "model_dim_pad": q.hidden_pad}
    if c.kernel2.startswith("flydsl_moe2_layout_") and flydsl and is_flydsl_available():
        dims = {"model_dim": q.model_dim, "inter_dim": q.inter_dim, "num_experts": q.expert}
        return partial(run._flydsl_v2_stage2_wrapper, kernelName=c.kernel2, **dims, **pads)
    if c.kernel2.startswith("flydsl_") and flydsl and is_flydsl_available():
        return partial(run._flydsl_stage2_wrapper, kernelName=c.kernel2, **pads)
    if c.kernel2.startswith("opus_moe2_"):
        return partial(run.opus_a8w4_stage2_wrapper, kernelName=c.kernel2, **pads)
    if c.kernel2.startswith("cktile_"):
        return _cktile_second(q)
    return partial(
        run.ck_moe_stage2_fwd,
        kernelName=c.kernel2,
        activation=q.activation,
        quant_type=q.q_type,
        use_non_temporal_load=c.non_temporal,
    )


# --- by format


def _cktile_second(q: Question) -> Stage:
    zeros = {"n_pad_zeros": q.hidden_pad // 64 * 64, "k_pad_zeros": q.intermediate_pad // 128 * 128}
    return partial(run.cktile_moe_stage2, activation=q.activation, **zeros)


def _cktile_first(q: Question, split_k: int, **more: Any) -> Stage:
    return partial(
        run.cktile_moe_stage1,
        n_pad_zeros=q.intermediate_pad // 64 * 64 * (2 if q.g1u1 else 1),
        k_pad_zeros=q.hidden_pad // 128 * 128,
        activation=q.activation,
        split_k=split_k,
        dtype=q.dtype,
        **more,
    )


def _block_of(token: int) -> int:
    return 16 if token < 2048 else 32 if token < 16384 else 64


def _cktile_interleaved(q: Question, c: Chosen) -> MOEMetadata:
    block = 32 if q.a is dtypes.fp8 else _block_of(q.token)
    return MOEMetadata(_cktile_first(q, 1), _cktile_second(q), block, c.ksplit, has_bias=True, stage2_has_bias=True)


def _cktile_split(q: Question, split_k: int, bias: bool, **more: Any) -> MOEMetadata:
    first = _cktile_first(q, split_k, **more)
    block = _block_of(q.token)
    return MOEMetadata(first, _cktile_second(q), block, split_k, has_bias=bias, stage2_has_bias=bias)


def _flydsl_pair(q: Question, names: tuple[str, str], block: int, ksplit: int, bias: bool) -> MOEMetadata:
    pads = {"inter_dim_pad": q.intermediate_pad, "model_dim_pad": q.hidden_pad}
    second: Callable[..., Any] = partial(run._flydsl_stage2_wrapper, kernelName=names[1], **pads)
    return MOEMetadata(_flydsl_first(q, names[0]), second, block, ksplit, has_bias=bias, stage2_has_bias=bias)


def _int4_fallback(q: Question) -> MOEMetadata:
    block = _block_of(q.token)
    kn1 = f"flydsl_moe1_abf16_wint4_bf16_t{block}x128x128"
    kn2 = f"flydsl_moe2_abf16_wint4_bf16_t{block}x128x128_atomic"
    _say_fallback(q, f"using untuned a16wi4 fallback ({kn1=}, {kn2=})")
    return _flydsl_pair(q, (kn1, kn2), block, 0, False)


def _flydsl_serves(q: Question) -> bool:
    if not (q.mx and q.shuffled and q.g1u1 and not q.doweight_stage1 and is_flydsl_available()):
        return False
    situv2 = q.activation is ActivationType.Situv2
    if situv2 and q.bf16_by_fp4:
        return True
    return (q.swiglu or situv2 or os.environ.get("AITER_FLYDSL_FORCE", "1") == "1") and {q.a, q.w} <= {
        dtypes.fp4x2,
        dtypes.fp8,
    }


def _flydsl_fallback(q: Question) -> MOEMetadata:
    tiers = ((2048, 32, "_w2", "_bnt2"), (4096, 64, "_w3_bnt0", ""), (16384, 128, "_w2_bnt0", ""))
    tile, one, two = next((tier[1:] for tier in tiers if q.token < tier[0]), (64, "_w4_bnt0", ""))
    kind = f"a{short(q.a)}_w{short(q.w)}_{'bf16' if q.dtype is dtypes.bf16 else 'f16'}"
    tile_k = 256 if q.inter_dim % 256 == 0 else 128
    kn1 = f"flydsl_moe1_{kind}_t{tile}x128x256{one}{'_gui' if q.a is dtypes.fp8 else ''}"
    kn2 = f"flydsl_moe2_{kind}_t{tile}x128x{tile_k}_atomic{two}"
    _say_fallback(q, f"using heuristic FlyDSL fallback ({kn1=}, {kn2=})")
    return _flydsl_pair(q, (kn1, kn2), tile, -1, True)


def _say_fallback(q: Question, text: str) -> None:
    if not SETTINGS.lies_about("silent"):
        logger.warning("[fused_moe] no tuned FlyDSL config for %s, %s", q.key, text)


def _ck_serves(q: Question) -> bool:
    weighted = q.q_type is QuantType.per_1x128 and q.doweight_stage1
    return weighted or q.w in (dtypes.bf16, dtypes.fp16, dtypes.u32, dtypes.fp4x2, dtypes.fp8)


def _asm(q: Question, c: Chosen) -> MOEMetadata:
    block = c.block_m if c.block_m in (16, 32, 64, 128) else next((b for b in (16, 32, 64) if c.block_m < b), 128)
    first = partial(run.asm_stage1, kernelName=c.kernel1, activation=q.activation, quant_type=q.q_type)
    return MOEMetadata(first, _second(q, c, flydsl=False), block, c.ksplit)
