"""Refusals that need no look at values: dtypes, shapes, contiguity, flags, routing (contract 5)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.enum import ActivationType, QuantType
from ..ops.flydsl.moe_common import GateMode
from ..ops.flydsl.utils import is_flydsl_available
from ..utility import dtypes
from .call import Call
from .layout import SCALE_COLUMNS, SCALE_ROWS
from .refusal import require

_ONE_BYTE_SCALES = (torch.uint8, dtypes.fp8_e8m0)


def check(call: Call, a: torch.dtype) -> None:
    """Refuses the call unless every tensor is as its recipe wants it."""
    _check_inputs(call)
    _check_routing(call)
    _check_formats(call)
    _check_flags(call, a)
    for name, rows, columns in (
        ("w1", call.w1.shape[1], call.model_dim),
        ("w2", call.model_dim, call.inter_dim),
    ):
        _check_weight(name, getattr(call, name), rows, columns)
        _check_scale(call, f"{name}_scale", getattr(call, f"{name}_scale"), rows, columns)
    _check_bias("bias1", call.bias1, (call.experts, call.w1.shape[1]))
    _check_bias("bias2", call.bias2, (call.experts, call.model_dim))


def _check_tensor(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    require(tensor.dtype is dtype, f"{name} is {tensor.dtype}, not {dtype}")
    require(tuple(tensor.shape) == shape, f"{name} has shape {tuple(tensor.shape)}, not {shape}")
    require(tensor.is_contiguous(), f"{name} is not contiguous")


def _check_inputs(call: Call) -> None:
    _check_tensor("hidden_states", call.hidden_states, torch.bfloat16, (call.tokens, call.model_dim))
    require(call.out_dtype is torch.bfloat16, f"dtype is {call.out_dtype}: the stand-in computes bf16 alone")
    require(call.g1u1, f"w1 has {call.w1.shape[1]} rows: no recipe has a gate alone")
    for name, pad, dim in (
        ("hidden_pad", call.hidden_pad, call.model_dim),
        ("intermediate_pad", call.intermediate_pad, call.inter_dim),
    ):
        require(0 <= pad < dim, f"{name} is {pad}, of {dim} elements")


def _check_routing(call: Call) -> None:
    shape = (call.tokens, call.topk)
    _check_tensor("topk_ids", call.topk_ids, torch.int32, shape)
    _check_tensor("topk_weight", call.topk_weight, torch.float32, shape)
    if call.num_local_tokens is not None:
        _check_tensor("num_local_tokens", call.num_local_tokens, torch.int32, (1,))
        require(0 <= int(call.num_local_tokens) <= call.tokens, f"num_local_tokens is {int(call.num_local_tokens)}")
    known = call.experts if call.expert_mask is None else _checked_mask(call, call.expert_mask)
    inside = (call.topk_ids >= 0) & (call.topk_ids < known)
    require(bool(inside.all()), f"topk_ids leaves 0 to {known - 1}")


def _checked_mask(call: Call, mask: Tensor) -> int:
    """The number of experts that the mask knows."""
    _check_tensor("expert_mask", mask, torch.int32, (mask.numel(),))
    local = int((mask != 0).sum())
    require(local == call.experts, f"expert_mask names {local} local experts, and w1 has {call.experts}")
    require(int(mask[-1]) == 0, "expert_mask's last expert is the fake one, and must be masked")
    last = call.topk_ids[:, -1].long().clamp(0, mask.numel() - 1)
    require(
        bool((mask[last] == 0).all()),
        "with expert_mask the last slot of topk_ids is a fake one, always masked: AITER looks up one slot less",
    )
    return mask.numel()


def _check_formats(call: Call) -> None:
    require(call.w1.dtype is call.w2.dtype, f"w1 is {call.w1.dtype} and w2 is {call.w2.dtype}")
    w = call.w1.dtype
    known = {
        QuantType.No: (dtypes.bf16,),
        QuantType.per_Tensor: (dtypes.fp8, dtypes.i8),
        QuantType.per_Token: (dtypes.fp8, dtypes.i8),
        QuantType.per_1x128: (dtypes.fp8,),
        QuantType.per_1x32: (dtypes.fp4x2, dtypes.fp8, dtypes.i4x2),
    }.get(call.q_type, ())
    listed = ", ".join(map(str, known)) or "nothing"
    require(w in known, f"weights are {w}; for {call.quant_type} on this device they are {listed}")


def _check_flags(call: Call, a: torch.dtype) -> None:
    w = call.w1.dtype
    for name in ("w1", "w2"):
        flag = getattr(getattr(call, name), "is_shuffled", False)
        require(flag or w is dtypes.i4x2, f"{name} lacks `is_shuffled`: set it again after the last view or copy")
    interleave = GateMode(call.gate_mode) is GateMode.INTERLEAVE
    require(
        GateMode(call.gate_mode) in (GateMode.SEPARATED, GateMode.INTERLEAVE), f"gate_mode {call.gate_mode} is reserved"
    )
    if call.q_type is QuantType.per_1x32 and (a is dtypes.fp8 or w is dtypes.fp8):
        require(interleave, f"gate_mode is {call.gate_mode}: fp8 activations read interleaved weights")
    elif w is not dtypes.fp4x2:
        require(not interleave, f"gate_mode is {call.gate_mode}: {call.quant_type} weights of {w} are separated")


def refuse_what_is_not_ported(call: Call, a: torch.dtype) -> None:
    """What AITER refuses before it looks any row up: SiTUv2 of bf16 activations has one kernel alone."""
    if call.activation is not ActivationType.Situv2 or a is not dtypes.bf16 or call.w1.dtype is not dtypes.fp4x2:
        return
    unsupported = {
        "FlyDSL is not installed": not is_flydsl_available(),
        "per-expert bias": call.bias1 is not None or call.bias2 is not None,
        "expert-parallel masking": call.expert_mask is not None,
        "weights that are not shuffled": not call.shuffled,
        "doweight_stage1=True": call.doweight_stage1,
    }
    for what, found in unsupported.items():
        if found:
            raise NotImplementedError(f"a16w4 (bf16 A x MXFP4 W) SiTUv2 is not supported: {what}.")


def _check_weight(name: str, weight: Tensor, rows: int, columns: int) -> None:
    packed = columns // 2 if weight.dtype in (dtypes.fp4x2, dtypes.i4x2) else columns
    wanted = (weight.shape[0], rows, packed)
    require(tuple(weight.shape) == wanted, f"{name} has shape {tuple(weight.shape)}, not {wanted}")
    require(weight.is_contiguous(), f"{name} is not contiguous")


def _check_scale(call: Call, name: str, scale: Tensor | None, rows: int, columns: int) -> None:
    if call.q_type is QuantType.No:
        require(scale is None, f"{name} is given, and {call.quant_type} has no scales")
        return
    require(scale is not None, f"{name} is missing")
    assert scale is not None
    if call.q_type is QuantType.per_1x32:
        _check_block_scale(call, name, scale, rows, columns)
        return
    shape = {
        QuantType.per_Tensor: (call.experts, 1),
        QuantType.per_Token: (call.experts, rows, 1),
        QuantType.per_1x128: (call.experts, rows // 128, columns // 128),
    }[call.q_type]
    _check_tensor(name, scale, torch.float32, shape)


def _check_block_scale(call: Call, name: str, scale: Tensor, rows: int, columns: int) -> None:
    require(scale.is_contiguous(), f"{name} is not contiguous")
    if call.w1.dtype is dtypes.i4x2:
        _check_tensor(name, scale, torch.bfloat16, (call.experts * rows * (columns // 32),))
        return
    require(scale.dtype in _ONE_BYTE_SCALES, f"{name} is {scale.dtype}, no e8m0 bytes")
    held = -(-columns // 32 // SCALE_COLUMNS) * SCALE_COLUMNS if columns % 32 == 0 else 0
    height = call.experts * rows
    sizes = {height * held, -(-height // SCALE_ROWS) * SCALE_ROWS * held}
    require(scale.numel() in sizes, f"{name} has {scale.numel()} bytes, not {' or '.join(map(str, sorted(sizes)))}")


def _check_bias(name: str, bias: Tensor | None, shape: tuple[int, ...]) -> None:
    if bias is not None:
        _check_tensor(name, bias, torch.float32, shape)
