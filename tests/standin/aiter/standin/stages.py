"""From the functions that AITER bound to what they compute, family by family."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ..jit.utils.chip_info import get_cu_num
from ..ops.enum import ActivationType, QuantType
from ..ops.flydsl.moe_common import GateMode
from ..ops.flydsl.moe_kernels import resolve_flydsl_stage1_tile_n, resolve_flydsl_stage2_tile_k
from ..utility import dtypes
from . import functions as run
from . import symbols
from .call import Call
from .functions import MOEMetadata
from .names import Flydsl, opus_slots, parse_flydsl, parse_layout, parse_mxmoe
from .numbers import Rounding
from .plan import (
    Activation,
    FirstStage,
    Plan,
    SecondStage,
    hard_limit,
    kind_of,
    passed_limit,
    recipe_rounding,
)
from .refusal import require
from .settings import SETTINGS
from .trace import Launch

logger = logging.getLogger("aiter")
_TILE_STEP = 128
_OPUS_SLOT_COLUMNS = 8


def plan_of(call: Call, a: torch.dtype, metadata: MOEMetadata) -> Plan:
    """What the bound functions compute. Raises as AITER does, or StandinRefused, for what its kernels cannot run."""
    unmodelled = [name for name in ("AITER_FLYDSL_STAGE2_FP8", "AITER_MXFP4_INTERMEDIATE") if _is_on(name)]
    require(not unmodelled, f"the stand-in does not model {', '.join(unmodelled)}")
    first = _FIRST[_function(metadata.stage1)](call, a, metadata)
    if metadata.stage2 is None:
        second = SecondStage((), call.model_dim)
        return Plan(first, second, first.fused or Rounding())
    second = _SECOND[_function(metadata.stage2)](call, a, metadata)
    return Plan(first, second, _hidden(call, a, metadata, first))


def _is_on(variable: str) -> bool:
    return os.environ.get(variable, "0") == "1"


def _function(stage: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = stage.func
    return function


def _unquantised(call: Call, a: torch.dtype, metadata: MOEMetadata, or_interleave: bool) -> bool:
    """Where AITER hands 16-bit values to kernels of fp4 weights."""
    if call.q_type is not QuantType.per_1x32 or call.w1.dtype is not dtypes.fp4x2:
        return False
    wide = a is dtypes.bf16 and call.activation in (ActivationType.Swiglu, ActivationType.Situv2)
    return wide or (or_interleave and a is dtypes.bf16 and GateMode(call.gate_mode) is GateMode.INTERLEAVE)


def _feed(call: Call, a: torch.dtype, metadata: MOEMetadata) -> Rounding:
    split = a is dtypes.fp4x2 and metadata.ksplit > 1 and call.shuffled
    if split or _unquantised(call, a, metadata, or_interleave=True):
        return Rounding()
    return recipe_rounding(call, a)


def _hidden(call: Call, a: torch.dtype, metadata: MOEMetadata, first: FirstStage) -> Rounding:
    """How the intermediate is rounded before stage 2 (contract 6.2)."""
    if first.fused:
        return first.fused
    split = call.w1.dtype is dtypes.fp4x2 and metadata.ksplit > 1 and call.shuffled
    if call.q_type is QuantType.per_1x32 and (split or _unquantised(call, a, metadata, or_interleave=False)):
        return Rounding()
    require(
        call.w1.dtype is not dtypes.fp4x2 or a is not dtypes.bf16,
        "AITER quantises this intermediate to fp4, and no kernel takes it beside bf16 activations",
    )
    return recipe_rounding(call, a)


# --- stage 1


def _mxmoe_first(call: Call, a: torch.dtype, metadata: MOEMetadata) -> FirstStage:
    bound = _bound(metadata.stage1)
    name = parse_mxmoe(1, bound["kernelName1"])
    fp4 = Rounding("fp4", "1x32")
    legal = {(32, False, True), (32, False, False), (64, False, False), (128, False, False), (16, True, True)}
    variant = (name.block_m, "f16in" in name.flags, "nt" in name.flags)
    if call.model_dim % 256 or 2 * call.inter_dim % 256 or variant not in legal:
        raise NotImplementedError(f"flydsl mxfp4 gemm1: unsupported shape or variant {variant}")
    launch = Launch(1, symbols.mxmoe_stage1(name, call, bound["interleave"]), bound["kernelName1"])
    return FirstStage(launch, Activation("silu"), fp4, bound["interleave"], fused=fp4)


def _bound(stage: Any) -> dict[str, Any]:
    bound: dict[str, Any] = stage.keywords
    return bound


def _flydsl_first(call: Call, a: torch.dtype, metadata: MOEMetadata) -> FirstStage:
    bound = _bound(metadata.stage1)
    name = parse_flydsl(1, bound["kernelName"])
    if name.a == "bf16":
        return _port_first(call, name, bound["kernelName"])
    fused = bound.get("out_dtype", name.fused)
    ran = replace(_tile_that_runs_first(call, name), fused=fused)
    kind = kind_of(call) if call.activation is not ActivationType.Gelu else "silu"
    symbol = symbols.flydsl_stage1(ran, kind, bool(metadata.skip_inter_quant))
    bias = metadata.has_bias and call.bias1 is not None
    return FirstStage(
        Launch(1, symbol, bound["kernelName"]),
        Activation(kind, passed_limit(call, kind), _or(call.beta, 1.0), _or(call.linear_beta, 1.0)),
        _feed(call, a, metadata),
        interleaved="gui" in name.flags,
        bias=bias,
        fused=Rounding(fused, "1x32", fused=True) if fused else None,
        skips_pads=bool(fused) and not bias,
    )


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else float(value)


def _tile_that_runs_first(call: Call, name: Flydsl) -> Flydsl:
    if SETTINGS.lies_about("downgraded"):
        return name.with_tile(n=name.n // 2)
    if (name.a, name.w) == ("fp8", "fp4"):
        return name.with_tile(n=resolve_flydsl_stage1_tile_n(call.inter_dim, name.n))
    return name


def _port_first(call: Call, name: Flydsl, kernel: str) -> FirstStage:
    kind = kind_of(call) if call.activation is not ActivationType.Gelu else "silu"
    assert kind in ("silu", "situv2"), f"a16w4 gemm1 act must be 'silu' or 'situv2', got {kind!r}"
    require(call.model_dim % name.k == 0, f"D_HIDDEN (K) must be a multiple of {name.k}, got {call.model_dim}")
    require(2 * call.inter_dim % name.n == 0, f"{kernel} does not tile inter_dim {call.inter_dim}")
    if SETTINGS.lies_about("downgraded"):
        name = name.with_tile(n=name.n // 2)
    limit = passed_limit(call, kind) if kind == "situv2" else hard_limit(kind)
    activation = Activation(kind, limit, _or(call.beta, 1.0), _or(call.linear_beta, 1.0))
    return FirstStage(Launch(1, symbols.port_stage1(name, call, kind), kernel), activation, Rounding())


def _opus_first(call: Call, a: torch.dtype, metadata: MOEMetadata) -> FirstStage:
    name = _bound(metadata.stage1)["kernelName"]
    if call.doweight_stage1:
        raise NotImplementedError("Opus A8W4 stage1 does not support routed-weight multiplication")
    kind = kind_of(call)
    symbol = symbols.OPUS_1.format(kind="pair_kwave" if "_pair_" in name else "group_split")
    activation = Activation(kind, passed_limit(call, kind), _or(call.beta, 4.0), _or(call.linear_beta, 25.0))
    return FirstStage(
        Launch(1, symbol, name),
        activation,
        _feed(call, a, metadata),
        interleaved=True,
        bias=metadata.has_bias and call.bias1 is not None,
        fused=Rounding("fp8", "1x32"),
    )


def _ck_first(call: Call, a: torch.dtype, metadata: MOEMetadata) -> FirstStage:
    require(
        call.w1.dtype is not dtypes.fp4x2 or a is dtypes.fp4x2,
        f"AITER has no CK kernel for {a} activations with fp4 weights: is a variable missing that makes it ask for"
        " others (AITER_BF16_FP8_MOE_BOUND)?",
    )
    require(call.q_type is not QuantType.per_1x32 or call.w1.dtype is dtypes.fp4x2, "CK has no mxfp8 kernel")
    return FirstStage(_ck_launch(1, call, metadata.stage1), _hard_activation(call), _feed(call, a, metadata))


def _hard_activation(call: Call) -> Activation:
    """Of kernels that take no limit."""
    kind = kind_of(call)
    require(kind != "situv2", f"AITER has no such kernel for {call.activation}")
    return Activation(kind, hard_limit(kind))


def _ck_launch(stage: int, call: Call, bound: Any) -> Launch:
    name: str = _bound(bound)["kernelName"]
    mx = call.q_type is QuantType.per_1x32
    foreign = [word for word in ("silu", "gelu", "swiglu") if f"_{word}_" in name and word != kind_of(call)]
    if foreign or (name and not name.startswith("moe_ck2stages_")):
        logger.warning("ck kernel not found: %s", name)
        name = ""
    tile = name.split("_")[3] if name else ""
    return Launch(stage, symbols.ck(stage, mx, tile.replace("x", ", ")), name)


def _cktile_first(call: Call, a: torch.dtype, metadata: MOEMetadata) -> FirstStage:
    bound = _bound(metadata.stage1)
    interleaved = bound["split_k"] == 1 or bound.get("post_activation_layout", "auto") == "auto"
    bias = metadata.has_bias and call.bias1 is not None
    if bias and interleaved and bound["split_k"] > 1:
        raise ValueError("CK-Tile interleaved split-k bias is not supported")
    launch = Launch(1, symbols.CK_TILE.format(stage=1), "")
    return FirstStage(launch, _hard_activation(call), _feed(call, a, metadata), interleaved, bias)


def _asm_first(call: Call, a: torch.dtype, metadata: MOEMetadata) -> FirstStage:
    name = _bound(metadata.stage1)["kernelName"]
    symbol = name or "fmoe_stage1 chosen in compiled code"
    rounding = recipe_rounding(call, a)
    fused = rounding if call.q_type is QuantType.per_1x128 else None
    return FirstStage(Launch(1, symbol, name), _hard_activation(call), rounding, fused=fused)


def _asm_both(call: Call, a: torch.dtype, metadata: MOEMetadata) -> FirstStage:
    name: str = _bound(metadata.stage1)["kernelName"]
    if name and f"_{kind_of(call)}_" not in name:
        raise RuntimeError(f"get_heuristic_kernel not find kernel {name}")
    symbol = name or "fmoe chosen in compiled code"
    rounding = recipe_rounding(call, a)
    return FirstStage(Launch(1, symbol, name), _hard_activation(call), rounding, fused=rounding)


# --- stage 2


def _mxmoe_second(call: Call, a: torch.dtype, metadata: MOEMetadata) -> SecondStage:
    kernel = _bound(metadata.stage2)["kernelName2"]
    if parse_layout(kernel):
        return _layout_second(call, kernel)
    name = parse_mxmoe(2, kernel)
    if call.inter_dim % 256 or call.model_dim % 256:
        raise NotImplementedError("flydsl mxfp4 gemm2: inter_dim and model_dim must be multiples of 256")
    launch = Launch(2, symbols.mxmoe_stage2(name, call), kernel)
    return SecondStage((launch,), call.model_dim, reduces="atomic" not in name.flags)


def _flydsl_second(call: Call, a: torch.dtype, metadata: MOEMetadata) -> SecondStage:
    kernel = _bound(metadata.stage2)["kernelName"]
    name = parse_flydsl(2, kernel)
    if name.a == "bf16":
        return _port_second(call, name, kernel)
    bias = metadata.stage2_has_bias and call.bias2 is not None
    reduces = name.mode == "reduce" or _is_on("AITER_FLYDSL_FORCE_REDUCE")
    lied_to = SETTINGS.lies_about("downgraded")
    tile_k = _TILE_STEP if lied_to else resolve_flydsl_stage2_tile_k(call.inter_dim, name.k)
    ran = name.with_tile(k=tile_k)
    written = _written(call, ran.n) if reduces and not bias else call.model_dim
    launch = Launch(2, symbols.flydsl_stage2(ran, call, get_cu_num(), reduces), kernel)
    return SecondStage((launch,), written, bias, reduces)


def _written(call: Call, tile_n: int) -> int:
    """Output columns of the tiles that hold any real one."""
    return -(-(call.model_dim - call.hidden_pad) // tile_n) * tile_n


def _port_second(call: Call, name: Flydsl, kernel: str) -> SecondStage:
    tile_n = name.n if call.model_dim % name.n == 0 else 256 if call.model_dim % 256 == 0 else _TILE_STEP
    symbol = symbols.port_stage2(name.with_tile(n=tile_n), call)
    return SecondStage((Launch(2, symbol, kernel),), call.model_dim)


def _v2_second(call: Call, a: torch.dtype, metadata: MOEMetadata) -> SecondStage:
    return _layout_second(call, _bound(metadata.stage2)["kernelName"])


_V2_LIMIT = 8192


def _layout_second(call: Call, kernel: str) -> SecondStage:
    name = parse_layout(kernel)
    assert name is not None
    if call.doweight_stage1:
        raise NotImplementedError("FlyDSL v2 GEMM2 requires sorted_weights; doweight_stage1=True is not supported")
    fits = call.model_dim % name.n == 0 and call.inter_dim % name.k == 0
    assert fits, f"{kernel} does not tile {call.model_dim} and {call.inter_dim}"
    assert max(call.model_dim, call.inter_dim) <= _V2_LIMIT, f"{kernel} serves dims up to {_V2_LIMIT}"
    assert name.a != "fp8" or "persist" not in name.flags, "a8w4/fp8-A gemm2 persist is not supported"
    reduces = name.mode == "reduce"
    launch = Launch(2, symbols.layout_stage2(name, call, get_cu_num()), kernel)
    return SecondStage((launch,), _written(call, name.n) if reduces else call.model_dim, reduces=reduces)


def _opus_second(call: Call, a: torch.dtype, metadata: MOEMetadata) -> SecondStage:
    kernel = _bound(metadata.stage2)["kernelName"]
    require((call.inter_dim - call.intermediate_pad) % 128 == 0, f"{kernel}: inter_dim without its pad is no multiple")
    slots = opus_slots(kernel)
    launches = [Launch(2, symbols.OPUS_2, kernel)]
    if slots != "atomic":
        launches.append(Launch(2, symbols.OPUS_REDUCE))
    columns = _OPUS_SLOT_COLUMNS if slots == "fp8" else 0
    return SecondStage(tuple(launches), call.model_dim, reduces=slots != "atomic", slot_columns=columns)


def _ck_second(call: Call, a: torch.dtype, metadata: MOEMetadata) -> SecondStage:
    return SecondStage((_ck_launch(2, call, metadata.stage2),), call.model_dim)


def _cktile_second(call: Call, a: torch.dtype, metadata: MOEMetadata) -> SecondStage:
    bias = metadata.stage2_has_bias and call.bias2 is not None
    return SecondStage((Launch(2, symbols.CK_TILE.format(stage=2)),), call.model_dim, bias)


_FIRST: dict[Callable[..., Any], Callable[[Call, Any, MOEMetadata], FirstStage]] = {
    run._mxfp4_a4w4_stage1_fw: _mxmoe_first,
    run._flydsl_stage1_wrapper: _flydsl_first,
    run.opus_a8w4_stage1_wrapper: _opus_first,
    run.ck_moe_stage1: _ck_first,
    run.cktile_moe_stage1: _cktile_first,
    run.asm_stage1: _asm_first,
    run.fused_moe_1stage: _asm_both,
}
_SECOND: dict[Callable[..., Any], Callable[[Call, Any, MOEMetadata], SecondStage]] = {
    run._mxfp4_a4w4_stage2_fw: _mxmoe_second,
    run._flydsl_stage2_wrapper: _flydsl_second,
    run._flydsl_v2_stage2_wrapper: _v2_second,
    run.opus_a8w4_stage2_wrapper: _opus_second,
    run.ck_moe_stage2_fwd: _ck_second,
    run.cktile_moe_stage2: _cktile_second,
}
