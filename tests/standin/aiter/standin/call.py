"""One call of fused_moe: its arguments, and what AITER makes of them before it looks a row up."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from ..jit.utils.chip_info import get_gfx
from ..ops.enum import ActivationType, QuantType
from ..ops.flydsl.moe_common import GateMode
from ..utility import dtypes
from .question import Question
from .refusal import require

_PRESET = ("a1_scale", "a2_scale", "stage2_scatter")
_SHARED = ("shared_w1", "shared_w2", "shared_w1_scale", "shared_w2_scale")


@dataclass(frozen=True, eq=False)
class Call:
    """The arguments by AITER's names."""

    hidden_states: Tensor
    w1: Tensor
    w2: Tensor
    topk_weight: Tensor
    topk_ids: Tensor
    expert_mask: Tensor | None
    activation: ActivationType
    quant_type: QuantType
    doweight_stage1: bool
    w1_scale: Tensor | None
    w2_scale: Tensor | None
    a1_scale: Tensor | None
    a2_scale: Tensor | None
    block_size_M: int | None  # noqa: N815
    num_local_tokens: Tensor | None
    moe_sorting_dispatch_policy: int
    dtype: torch.dtype | None
    hidden_pad: int
    intermediate_pad: int
    bias1: Tensor | None
    bias2: Tensor | None
    splitk: int
    swiglu_limit: float | None
    beta: float | None
    linear_beta: float | None
    gate_mode: str | None
    shared_w1: Tensor | None
    shared_w2: Tensor | None
    shared_w1_scale: Tensor | None
    shared_w2_scale: Tensor | None
    shared_expert_id: int
    stage2_scatter: object | None

    def __post_init__(self) -> None:
        require(isinstance(self.activation, ActivationType), f"activation is {self.activation!r}, no ActivationType")
        require(isinstance(self.quant_type, QuantType), f"quant_type is {self.quant_type!r}, no QuantType")
        require(isinstance(self.gate_mode, str), f"gate_mode is {self.gate_mode!r}: AITER takes the text of a GateMode")
        for name in ("hidden_pad", "intermediate_pad"):
            require(type(getattr(self, name)) is int, f"{name} is {getattr(self, name)!r}, no int")
        for name in ("swiglu_limit", "beta", "linear_beta"):
            value = getattr(self, name)
            require(value is None or isinstance(value, (int, float)), f"{name} is {value!r}, no number")
        unknown = [name for name in _PRESET if getattr(self, name) is not None]
        require(not unknown, f"the stand-in does not model {', '.join(unknown)}")
        if any(getattr(self, name) is not None for name in _SHARED) or self.shared_expert_id != -1:
            raise NotImplementedError("the stand-in has no dedicated shared-expert path")
        require(self.w1.dim() == 3 and self.w2.dim() == 3, "w1 and w2 have three dimensions each")
        rows = self.w1.shape[1]
        require(
            rows in (self.inter_dim, 2 * self.inter_dim),
            f"Invalid MoE weight: w1 {tuple(self.w1.shape)}, w2 {tuple(self.w2.shape)}",
        )

    # --- dims

    @property
    def tokens(self) -> int:
        return self.topk_ids.shape[0]

    @property
    def topk(self) -> int:
        """Slots a token, an expert-parallel fake slot included."""
        return self.topk_ids.shape[1]

    @property
    def experts(self) -> int:
        return self.w2.shape[0]

    @property
    def model_dim(self) -> int:
        return self.w2.shape[1]

    @property
    def inter_dim(self) -> int:
        return self.w2.shape[2] * (self.model_dim // self.w1.shape[2])

    # --- what AITER derives

    @property
    def g1u1(self) -> bool:
        return self.w1.shape[1] != self.inter_dim

    @property
    def q_type(self) -> QuantType:
        """`per_128x128` is looked up as `per_1x128`."""
        return QuantType.per_1x128 if self.quant_type is QuantType.per_128x128 else self.quant_type

    @property
    def out_dtype(self) -> torch.dtype:
        return self.hidden_states.dtype if self.dtype is None else self.dtype

    @property
    def shuffled(self) -> bool:
        """Whether either weight says so, which is what rows are chosen by."""
        return any(getattr(weight, "is_shuffled", False) for weight in (self.w1, self.w2))

    @property
    def both_shuffled(self) -> bool:
        return all(getattr(weight, "is_shuffled", False) for weight in (self.w1, self.w2))

    def question(self, a: torch.dtype, token: int) -> Question:
        """The lookup of this call, with activations as `a`."""
        is_ep = self.expert_mask is not None
        return Question(
            token, self.model_dim, self.inter_dim, self.experts, self.topk - int(is_ep), self.out_dtype, a,
            self.w1.dtype, self.q_type, self.g1u1, self.activation, self.doweight_stage1, self.hidden_pad,
            self.intermediate_pad, self.shuffled, GateMode(self.gate_mode), is_ep, self.bias2 is not None,
            self.both_shuffled,
        )  # fmt: skip

    def activation_dtype(self, swiglu_bf16_bound: int) -> torch.dtype:
        """What AITER quantises activations to (contract 3.1). The true token count decides, not the padded one."""
        w = self.w1.dtype
        if self.q_type is not QuantType.per_1x32 or w is dtypes.fp8:
            return dtypes.fp8 if w is dtypes.u32 else w
        if w is dtypes.i4x2:
            return dtypes.bf16
        if self.activation is ActivationType.Situv2:
            return self._situv2_dtype()
        swiglu = self.activation is ActivationType.Swiglu
        if swiglu and GateMode(self.gate_mode) is GateMode.SEPARATED:
            return dtypes.bf16 if self.tokens < swiglu_bf16_bound else dtypes.fp4x2
        if swiglu or GateMode(self.gate_mode) is GateMode.INTERLEAVE:
            bound = int(os.environ.get("AITER_BF16_FP8_MOE_BOUND", "256"))
            return dtypes.bf16 if get_gfx() != "gfx950" or self.tokens < bound else dtypes.fp8
        return dtypes.fp4x2

    def _situv2_dtype(self) -> torch.dtype:
        if os.environ.get("AITER_SITUV2_A8W4", "0") == "1":
            return dtypes.fp8
        return dtypes.fp4x2 if os.environ.get("AITER_SITUV2_A4W4", "0") == "1" else dtypes.bf16
