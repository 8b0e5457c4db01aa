"""References for the two-stage fused MoE, in fp64 on any device.

`exact` is O of the design: quantised weights at their exact values, activations unquantised, nothing rounded between.
`modelled` is R_v: the same layer with the roundings that a row's kernel names state. Both work on logical widths only,
so that padding cannot hide in them, and decode each distinct weight set once for all calls together.

Semantics (contract 6.1): x W1^T, routing weight if in stage 1, bias 1, activation; then h W2^T, bias 2, routing weight
if not in stage 1, sum over slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from moeshapes.activation import activate
from moeshapes.arithmetic import Arithmetic
from moeshapes.problem import Problem
from moeshapes.products import EXACT, Work, multiply
from moeshapes.quant import ScaleRule, Spec, activation_spec, e8m0_decode, e8m0_scale, fp8_dtype, quantise
from moeshapes.recipe import Format
from moeshapes.workload import Call, Layer, expert_rows

_NUDGES = (0, -1, 1)
_ACCUMULATION, _EVALUATION = 2.0**-16, 2.0**-19
"""Relatively, fp32 accumulation errs of gates and ups by less than the one, and fp32 of the activation by less than
the other; together an intermediate moves by some 2^-15. It matters where that is quantised: an e8m0 scale near its
boundary falls either way, and its block is rounded on another grid. Before the activation, since accumulation errs
nothing of what that clamps: all that Swiglu clamps at 7 is 56 (1 - 2^-17), which is that near to a boundary of fp8's
scales.
"""


@dataclass(frozen=True)
class Reference:
    """What one call should give: `output` `[M, H]` and the intermediate `[M * k, I]` (slots of a token together), fp64,
    logical widths. The intermediate is after re-quantisation where there is one.

    `others` are outputs and intermediates as good as these, where accumulation in fp32 decides which way values round.
    """

    output: Tensor
    intermediate: Tensor
    others: tuple[tuple[Tensor, Tensor], ...] = ()


@dataclass(frozen=True)
class Pass:
    """Calls to compute with one arithmetic, or exactly for None."""

    calls: Sequence[Call]
    arithmetic: Arithmetic | None


def exact(layer: Layer, calls: Sequence[Call]) -> list[Reference]:
    """O for each call."""
    return references(layer, [Pass(calls, None)])[0]


def modelled(layer: Layer, calls: Sequence[Call], arithmetic: Arithmetic) -> list[Reference]:
    """R_v for each call."""
    return references(layer, [Pass(calls, arithmetic)])[0]


def references(layer: Layer, passes: Sequence[Pass]) -> list[list[Reference]]:
    """A reference for each call of each pass. All passes share the expansion of each weight set: most of the work."""
    batches = [_Batch(layer, work) for work in passes]
    _stage1(layer, batches)
    for batch in batches:
        batch.requantise()
    _stage2(layer, batches)
    return [batch.references() for batch in batches]


class _Batch:
    """A pass's tokens side by side, with the slots' intermediates `[M * k, I]` and results `[M * k, H]`, fp64.

    There is one of each, or three where the intermediate is quantised: its own, and those of the nudged ones.
    """

    def __init__(self, layer: Layer, work: Pass) -> None:
        self.problem = layer.problem
        self.arithmetic = work.arithmetic
        self.slots_of_call = [call.tokens * self.problem.topk for call in work.calls]
        self.x = torch.cat([_as_fed(self.problem, call.activations, work.arithmetic) for call in work.calls])
        ids = torch.cat([call.topk_ids for call in work.calls])
        self.expert = ids.flatten().long()
        self.weight = torch.cat([call.topk_weights for call in work.calls]).flatten().to(EXACT).unsqueeze(1)
        self.rows_of_set = expert_rows(layer, ids)
        self.hidden: list[Tensor] = []
        self.slots: list[Tensor] = []

    @property
    def nudges(self) -> tuple[int, ...]:
        quantises = self.arithmetic is not None and self.problem.recipe.quantises_activations
        return _NUDGES if quantises else (0,)

    def requantise(self) -> None:
        self.hidden = [
            torch.cat([_intermediate(self.problem, call, self.arithmetic) for call in hidden.split(self.slots_of_call)])
            for hidden in self.hidden
        ]

    def references(self) -> list[Reference]:
        variants = [
            zip(map(self._combined, slots.split(self.slots_of_call)), hidden.split(self.slots_of_call), strict=True)
            for slots, hidden in zip(self.slots, self.hidden, strict=True)
        ]
        return [Reference(output, hidden, tuple(others)) for (output, hidden), *others in zip(*variants, strict=True)]

    def _combined(self, slots: Tensor) -> Tensor:
        return _combine(slots.unflatten(0, (-1, self.problem.topk)), self.arithmetic)


def _as_fed(problem: Problem, x: Tensor, arithmetic: Arithmetic | None) -> Tensor:
    """Activations as stage 1 sees them, fp64, logical width. Quantised with their padding, as kernels get them."""
    if arithmetic is not None:
        x = quantise(x, activation_spec(problem.recipe, problem.fnuz)).dequantise(EXACT)
    return x[:, : problem.logical_model_dim].to(EXACT)


def _stage1(layer: Layer, batches: Sequence[_Batch]) -> None:
    problem = layer.problem
    live, inter_dim = problem.logical_inter_dim, problem.inter_dim
    spans = [range(live), range(inter_dim, inter_dim + live)]
    works = [Work(batch.x, problem.topk, batch.rows_of_set, 2 * live) for batch in batches]
    multiply(layer.w1, spans, works)
    for batch, work in zip(batches, works, strict=True):
        gate, up = _gate_and_up(layer, batch, work.result)
        batch.hidden = [_nudged(problem, gate, up, nudge) for nudge in batch.nudges]


def _gate_and_up(layer: Layer, batch: _Batch, gate_up: Tensor) -> tuple[Tensor, Tensor]:
    problem, live = layer.problem, layer.problem.logical_inter_dim
    if problem.doweight_stage1:
        gate_up *= batch.weight
    gate, up = gate_up.split(live, dim=1)
    if layer.bias1 is not None:
        bias = layer.bias1[batch.expert].to(EXACT)
        gate, up = gate + bias[:, :live], up + bias[:, problem.inter_dim : problem.inter_dim + live]
    return gate, up


def _nudged(problem: Problem, gate: Tensor, up: Tensor, nudge: int) -> Tensor:
    """The activated intermediate, larger or smaller by what fp32 errs; itself for 0."""
    if not nudge:
        return activate(gate, up, problem.activation)
    moved = 1 + nudge * _ACCUMULATION
    return activate(gate * moved, up * moved, problem.activation) * (1 + nudge * _EVALUATION)


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
    return quantise(filled, spec).dequantise(EXACT)


def _stage2(layer: Layer, batches: Sequence[_Batch]) -> None:
    live = layer.problem.logical_model_dim
    works = [[Work(hidden, 1, batch.rows_of_set, live) for hidden in batch.hidden] for batch in batches]
    multiply(layer.w2, [range(live)], [work for each in works for work in each])
    for batch, each in zip(batches, works, strict=True):
        batch.slots = [_weighted(layer, batch, work.result) for work in each]


def _weighted(layer: Layer, batch: _Batch, out: Tensor) -> Tensor:
    if layer.bias2 is not None:
        out += layer.bias2[batch.expert][:, : layer.problem.logical_model_dim]
    return out if layer.problem.doweight_stage1 else out.mul_(batch.weight)


def _combine(slots: Tensor, arithmetic: Arithmetic | None) -> Tensor:
    """`[M, k, H]` slots to `[M, H]`."""
    if arithmetic is None:
        return slots.sum(dim=1)
    if arithmetic.slot_fp8_block:
        slots = _through_fp8(slots, arithmetic.slot_fp8_block)
    parts = slots.bfloat16()
    if arithmetic.combine == "reduce":
        return parts.float().sum(dim=1).bfloat16().to(EXACT)
    total = parts[:, 0]
    for slot in range(1, parts.shape[1]):
        total = total + parts[:, slot]
    return total.to(EXACT)


def _through_fp8(slots: Tensor, block: int) -> Tensor:
    """Each slot stored as fp8 with one e8m0 scale a few columns, then read back."""
    blocks = slots.float().unflatten(-1, (-1, block))
    scale = e8m0_decode(e8m0_scale(blocks.abs().amax(dim=-1), Format.FP8, False, ScaleRule.ROUND_UP)).unsqueeze(-1)
    stored = (blocks / scale).clamp(-448, 448).to(fp8_dtype(False))
    read: Tensor = stored.to(EXACT) * scale
    return read.flatten(-2)
