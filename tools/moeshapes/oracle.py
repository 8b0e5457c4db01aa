"""References for the two-stage fused MoE, in fp64 on any device.

`exact` is O of the design: quantised weights at their exact values, activations unquantised, nothing rounded in between.
`modelled` is R_v: the same layer with the roundings that a row's kernel names state. Both work on logical widths only, so that
padding cannot hide in them, and decode each distinct weight set once for all calls together.

Semantics (contract 6.1): x W1^T, routing weight if in stage 1, bias 1, activation; then h W2^T, bias 2, routing weight if not
in stage 1, sum over slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from moeshapes.activation import activate
from moeshapes.arithmetic import Arithmetic
from moeshapes.problem import Problem
from moeshapes.quant import Quantised, ScaleRule, Spec, activation_spec, e8m0_decode, e8m0_scale, fp8_dtype, quantise
from moeshapes.recipe import Format
from moeshapes.workload import Call, Layer, expert_rows

_EXACT = torch.float64


@dataclass(frozen=True)
class Reference:
    """What one call should give: `output` `[M, H]` and the intermediate `[M * k, I]` (slots of a token together), fp64,
    logical widths. The intermediate is after re-quantisation where there is one.
    """

    output: Tensor
    intermediate: Tensor


def exact(layer: Layer, calls: Sequence[Call]) -> list[Reference]:
    """O for each call."""
    return _forward(layer, calls, None)


def modelled(layer: Layer, calls: Sequence[Call], arithmetic: Arithmetic) -> list[Reference]:
    """R_v for each call."""
    return _forward(layer, calls, arithmetic)


def _forward(layer: Layer, calls: Sequence[Call], arithmetic: Arithmetic | None) -> list[Reference]:
    batch = _Batch(layer, calls)
    inputs = [_as_fed(layer.problem, call.activations, arithmetic) for call in calls]
    hidden = _stage1(layer, batch, torch.cat(inputs))
    hidden = torch.cat([_intermediate(layer.problem, h, arithmetic) for h in batch.split_slots(hidden)])
    slots = _stage2(layer, batch, hidden)
    outputs = [_combine(s.unflatten(0, (-1, layer.problem.topk)), arithmetic) for s in batch.split_slots(slots)]
    return [Reference(o, h) for o, h in zip(outputs, batch.split_slots(hidden), strict=True)]


class _Batch:
    """The calls' tokens side by side, so that each weight set is decoded once."""

    def __init__(self, layer: Layer, calls: Sequence[Call]) -> None:
        self.topk = layer.problem.topk
        self.slots_of_call = [call.tokens * self.topk for call in calls]
        ids = torch.cat([call.topk_ids for call in calls])
        self.expert = ids.flatten().long()
        self.weight = torch.cat([call.topk_weights for call in calls]).flatten().to(_EXACT).unsqueeze(1)
        self.rows_by_set = expert_rows(layer, ids)

    def split_slots(self, slots: Tensor) -> list[Tensor]:
        return list(slots.split(self.slots_of_call))


def _as_fed(problem: Problem, x: Tensor, arithmetic: Arithmetic | None) -> Tensor:
    """Activations as stage 1 sees them, fp64, logical width. Quantised with their padding, as a kernel is given them."""
    if arithmetic is not None:
        x = quantise(x, activation_spec(problem.recipe, problem.fnuz)).dequantise(_EXACT)
    return x[:, : problem.logical_model_dim].to(_EXACT)


def _stage1(layer: Layer, batch: _Batch, x: Tensor) -> Tensor:
    problem, live = layer.problem, layer.problem.logical_inter_dim
    hidden = x.new_empty(batch.expert.shape[0], live)
    for index, rows in batch.rows_by_set:
        weight = _logical(layer.w1[index], problem.logical_model_dim)
        gate_up = torch.cat((weight[:live], weight[problem.inter_dim : problem.inter_dim + live]))
        pre = x[rows // batch.topk] @ gate_up.T
        if problem.doweight_stage1:
            pre *= batch.weight[rows]
        gate, up = pre.split(live, dim=1)
        if layer.bias1 is not None:
            bias = layer.bias1[batch.expert[rows]].to(_EXACT)
            gate = gate + bias[:, :live]
            up = up + bias[:, problem.inter_dim : problem.inter_dim + live]
        hidden[rows] = activate(gate, up, problem.activation)
    return hidden


def _intermediate(problem: Problem, hidden: Tensor, arithmetic: Arithmetic | None) -> Tensor:
    """One call's intermediate as stage 2 sees it."""
    if arithmetic is None:
        return hidden
    rounded = hidden.to(torch.bfloat16 if arithmetic.intermediate_from == "bf16" else torch.float32)
    spec = activation_spec(problem.recipe, problem.fnuz)
    if arithmetic.fused_scale:
        spec = spec.with_rule(ScaleRule.FUSED)
    return _requantise(rounded, spec, problem.inter_dim)[:, : problem.logical_inter_dim]


def _requantise(rounded: Tensor, spec: Spec, padded: int) -> Tensor:
    filled = torch.nn.functional.pad(rounded, (0, padded - rounded.shape[1]))
    return quantise(filled, spec).dequantise(_EXACT)


def _stage2(layer: Layer, batch: _Batch, hidden: Tensor) -> Tensor:
    problem = layer.problem
    slots = hidden.new_empty(hidden.shape[0], problem.logical_model_dim)
    for index, rows in batch.rows_by_set:
        weight = _logical(layer.w2[index], problem.logical_inter_dim)[: problem.logical_model_dim]
        out = hidden[rows] @ weight.T
        if layer.bias2 is not None:
            out += layer.bias2[batch.expert[rows]][:, : problem.logical_model_dim]
        slots[rows] = out if problem.doweight_stage1 else out * batch.weight[rows]
    return slots


def _logical(weight: Quantised, live_k: int) -> Tensor:
    return weight.dequantise(_EXACT)[:, :live_k]


def _combine(slots: Tensor, arithmetic: Arithmetic | None) -> Tensor:
    """`[M, k, H]` slots to `[M, H]`."""
    if arithmetic is None:
        return slots.sum(dim=1)
    if arithmetic.slot_fp8_block:
        slots = _through_fp8(slots, arithmetic.slot_fp8_block)
    parts = slots.bfloat16()
    if arithmetic.combine == "reduce":
        return parts.float().sum(dim=1).bfloat16().to(_EXACT)
    total = parts[:, 0]
    for slot in range(1, parts.shape[1]):
        total = total + parts[:, slot]
    return total.to(_EXACT)


def _through_fp8(slots: Tensor, block: int) -> Tensor:
    """Each slot stored as fp8 with one e8m0 scale a few columns, then read back."""
    blocks = slots.float().unflatten(-1, (-1, block))
    scale = e8m0_decode(e8m0_scale(blocks.abs().amax(dim=-1), Format.FP8, False, ScaleRule.ROUND_UP)).unsqueeze(-1)
    return ((blocks / scale).clamp(-448, 448).to(fp8_dtype(False)).float() * scale).flatten(-2).to(_EXACT)
