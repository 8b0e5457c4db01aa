"""One lookup: everything that decides which kernels run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..jit.utils.chip_info import get_cu_num, get_gfx_runtime
from ..ops.enum import ActivationType, QuantType
from ..ops.flydsl.moe_common import GateMode
from ..utility import dtypes


@dataclass(frozen=True)
class Question:
    """The arguments of `get_2stage_cfgs`; `token` is the padded count, `topk` without an expert-parallel fake slot."""

    token: int
    model_dim: int
    inter_dim: int
    expert: int
    topk: int
    dtype: torch.dtype
    a: torch.dtype
    w: torch.dtype
    q_type: QuantType
    g1u1: bool
    activation: ActivationType
    doweight_stage1: bool
    hidden_pad: int
    intermediate_pad: int
    shuffled: bool
    gate_mode: GateMode
    is_ep: bool
    stage2_bias: bool
    both_shuffled: bool

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The tuple that a row is looked up by, and that log lines print."""
        return (
            get_gfx_runtime(), get_cu_num(), self.token, self.model_dim, self.inter_dim, self.expert, self.topk,
            self.activation, str(self.dtype), str(self.a), str(self.w), str(self.q_type), self.g1u1,
            self.doweight_stage1,
        )  # fmt: skip

    @property
    def mx(self) -> bool:
        return self.q_type is QuantType.per_1x32

    @property
    def swiglu(self) -> bool:
        return self.activation is ActivationType.Swiglu

    @property
    def bf16_by_fp4(self) -> bool:
        return self.mx and self.a is dtypes.bf16 and self.w is dtypes.fp4x2
