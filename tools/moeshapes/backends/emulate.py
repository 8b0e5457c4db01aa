"""The `emulate` backend: a row's plan in plain torch, on CPU or any torch device.

It follows a kernel's data flow (tokens sorted into block_m tiles, buffers of padded width, the intermediate as codes
and scales, slots reduced or added as atomics land) in fp32 where kernels accumulate. It shares quantisers and the
activation with the references, whose own tests compare them with independent implementations, and nothing else. Every
step is a method, so that the sensitivity suite can replace one by a lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from moeshapes.activation import activate
from moeshapes.arithmetic import Arithmetic, Departure, arithmetic_of, default_arithmetic
from moeshapes.problem import Activation, Problem
from moeshapes.quant import (
    Quantised,
    ScaleRule,
    Spec,
    activation_spec,
    e8m0_decode,
    e8m0_scale,
    fp8_dtype,
    quantise,
)
from moeshapes.recipe import Format, QType
from moeshapes.verify.lookup import NO_LOOKUP, Lookup
from moeshapes.workload import Call, Layer

_GATE_UP_GRANULE = 16
"""Rows of gate and of up that alternate in interleaved weights on gfx9 (contract 5.2)."""
_HARD_SWIGLU_LIMIT = 7.0
"""What kernels that take no limit have compiled in for Swiglu (contract 6.1)."""
_SLOT_SHIFT = 24
"""Sorted ids hold the slot in bits 24 to 31 and the token below (contract 5)."""


class EmulateBackend:
    """Backend of `emulate`."""

    name = "emulate"
    emulated = True

    def prepare(self, layer: Layer) -> EmulatedLayer:
        return EmulatedLayer(layer)


class EmulatedLayer:
    """Weights expanded once, fp32, in the layout that the gate mode has."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.problem = layer.problem
        order = gate_up_order(self.problem).to(layer.device)
        self.w1 = [weight.dequantise()[order] for weight in layer.w1]
        self.w2 = [weight.dequantise() for weight in layer.w2]

    def arm(self, launch: Mapping[str, Any] | None, token: int, lookup: Lookup = NO_LOOKUP) -> EmulatedArm:
        recipe = self.problem.recipe
        arithmetic = default_arithmetic(recipe, token) if launch is None else arithmetic_of(launch, recipe)
        return EmulatedArm(self, arithmetic)


def gate_up_order(problem: Problem) -> Tensor:
    """The row order of w1, int64 `[2I]`: gate then up, or 16 rows of each in turn where gates are interleaved."""
    rows = torch.arange(2 * problem.inter_dim)
    if not problem.interleave:
        return rows
    return rows.view(2, -1, _GATE_UP_GRANULE).transpose(0, 1).reshape(-1)


@dataclass(frozen=True)
class Sorted:
    """Slots sorted by expert, each expert's filled up to block_m.

    ids: int32 `[R]`, slot << 24 | token, token = M in filling rows. expert: int32 `[R / block_m]`, the expert of each
    tile.
    """

    ids: Tensor
    expert: Tensor
    block_m: int
    tokens: int

    @property
    def token(self) -> Tensor:
        return (self.ids & ((1 << _SLOT_SHIFT) - 1)).long()

    def live_rows(self) -> Tensor:
        """Rows that hold a token, int64."""
        return (self.token < self.tokens).nonzero().flatten()


def sort_slots(topk_ids: Tensor, experts: int, block_m: int) -> Sorted:
    """Sorts `topk_ids` `[M, k]` as AITER's `moe_sorting` does."""
    tokens, topk = topk_ids.shape
    device, flat = topk_ids.device, topk_ids.flatten().long()
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=experts)
    tiles = (counts + block_m - 1) // block_m
    first_row = (tiles.cumsum(0) - tiles) * block_m
    first_slot = counts.cumsum(0) - counts
    expert = flat[order]
    position = first_row[expert] + torch.arange(tokens * topk, device=device) - first_slot[expert]
    ids = torch.full((int(tiles.sum()) * block_m,), tokens, dtype=torch.int32, device=device)
    ids[position] = ((order % topk) << _SLOT_SHIFT | order // topk).int()
    tile_expert = torch.arange(experts, device=device).repeat_interleave(tiles).int()
    return Sorted(ids, tile_expert, block_m, tokens)


@dataclass(frozen=True)
class Rows:
    """Live rows of one weight set: `at` in the sorted order, their token, slot (0..k-1) and expert; all int64."""

    set_index: int
    at: Tensor
    token: Tensor
    slot: Tensor
    expert: Tensor


class EmulatedArm:
    """One arithmetic over a prepared layer."""

    def __init__(self, prepared: EmulatedLayer, arithmetic: Arithmetic) -> None:
        self.prepared = prepared
        self.layer = prepared.layer
        self.problem = prepared.problem
        self.arithmetic = arithmetic
        self.activation = _kernel_activation(self.problem.activation, arithmetic)
        self.drops_bias = Departure.BIAS_DROPPED in arithmetic.departures

    def activate(self) -> AbstractContextManager[None]:
        return nullcontext()

    def launched(self) -> list[str]:
        return [f"emulated {self.arithmetic}"]

    def stages(self) -> EmulatedStages:
        return EmulatedStages(self)

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        ids, weights = self.route(call)
        tiles = sort_slots(ids, self.problem.expert, self.arithmetic.block_m)
        groups = self.group(tiles)
        intermediate = self.first_stage(call, tiles, groups, weights)
        return self.second_stage(tiles, groups, intermediate, weights, out)

    # --- routing

    def route(self, call: Call) -> tuple[Tensor, Tensor]:
        return call.topk_ids, call.topk_weights

    def group(self, tiles: Sorted) -> list[Rows]:
        at = tiles.live_rows()
        expert = tiles.expert.long()[at // tiles.block_m]
        sets = self.layer.set_of[expert]
        token, slot = tiles.token[at], (tiles.ids[at] >> _SLOT_SHIFT).long()
        found = []
        for index in sets.unique().tolist():
            own = sets == index
            found.append(Rows(index, at[own], token[own], slot[own], expert[own]))
        return found

    # --- stage 1

    def first_stage(self, call: Call, tiles: Sorted, groups: list[Rows], weights: Tensor) -> Quantised:
        x = self.read_activations(call.activations)
        dtype = torch.float32 if self.arithmetic.intermediate_from == "fp32" else torch.bfloat16
        return self.requantise(self.first_gemm(x, tiles, groups, weights, dtype), tiles)

    def read_activations(self, activations: Tensor) -> Tensor:
        """Activations after the recipe's quantiser, fp32 `[M, H]`."""
        return quantise(activations, self._spec()).dequantise()

    def _spec(self) -> Spec:
        return activation_spec(self.problem.recipe, self.problem.fnuz)

    def first_gemm(self, x: Tensor, tiles: Sorted, groups: list[Rows], weights: Tensor, dtype: torch.dtype) -> Tensor:
        """Stage 1 up to its epilogue: `[R, I]` in sorted rows, padded columns written, filling rows not."""
        written = torch.empty((tiles.ids.shape[0], self.problem.inter_dim), dtype=dtype, device=x.device)
        for rows in groups:
            pre = self.preactivation(x, rows)
            if self.problem.doweight_stage1:
                pre = pre * weights[rows.token, rows.slot].unsqueeze(1)
            gate, up = self.add_bias1(*self.split_gate_up(pre), rows)
            self.write_intermediate(written, rows, self.gated(gate, up))
        return written

    def preactivation(self, x: Tensor, rows: Rows) -> Tensor:
        """`[r, 2I]` in the layout of w1."""
        k = self.problem.logical_model_dim if self.problem.pads_as_arguments else self.problem.model_dim
        return x[rows.token, :k] @ self.prepared.w1[rows.set_index][:, :k].T

    def split_gate_up(self, pre: Tensor) -> tuple[Tensor, Tensor]:
        if not self.problem.interleave:
            gate, up = pre.split(self.problem.inter_dim, dim=1)
            return gate, up
        pairs = pre.unflatten(1, (-1, 2, _GATE_UP_GRANULE))
        return pairs[:, :, 0].flatten(1), pairs[:, :, 1].flatten(1)

    def add_bias1(self, gate: Tensor, up: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        if self.layer.bias1 is None or self.drops_bias:
            return gate, up
        gate_bias, up_bias = self.layer.bias1[rows.expert].split(self.problem.inter_dim, dim=1)
        return gate + gate_bias, up + up_bias

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        return activate(gate, up, self.activation)

    def write_intermediate(self, written: Tensor, rows: Rows, values: Tensor) -> None:
        written[rows.at] = values.to(written.dtype)

    # --- between the stages

    def requantise(self, written: Tensor, tiles: Sorted) -> Quantised:
        """The intermediate as codes and scales in sorted rows: live rows quantised over their whole padded width."""
        live = tiles.live_rows()
        spec = self._spec().with_rule(ScaleRule.FUSED) if self.arithmetic.fused_scale else self._spec()
        quantised = quantise(written[live], spec)
        codes = _scatter(quantised.codes, live, written.shape[0])
        scales = quantised.scales
        if scales is not None and spec.q_type is not QType.PER_TENSOR:
            scales = _scatter(scales, live, written.shape[0])
        return Quantised(spec, codes, scales)

    # --- stage 2

    def second_stage(
        self, tiles: Sorted, groups: list[Rows], intermediate: Quantised, weights: Tensor, out: Tensor | None
    ) -> Tensor:
        shape = (tiles.tokens, self.problem.topk, self.problem.model_dim)
        slots = torch.empty(shape, dtype=torch.float32, device=weights.device)
        hidden = intermediate.dequantise()
        for rows in groups:
            self.write_slots(slots, rows, self.second_gemm(hidden, rows, weights))
        result = self.combine(slots, self.slot_order(groups, tiles))
        if out is None:
            return result
        out[: tiles.tokens] = result
        return out

    def second_gemm(self, hidden: Tensor, rows: Rows, weights: Tensor) -> Tensor:
        k = self.problem.logical_inter_dim if self.problem.pads_as_arguments else self.problem.inter_dim
        y = hidden[rows.at, :k] @ self.prepared.w2[rows.set_index][:, :k].T
        if self.layer.bias2 is not None and not self.drops_bias:
            y = y + self.layer.bias2[rows.expert]
        return y if self.problem.doweight_stage1 else self.weigh(y, rows, weights)

    def weigh(self, y: Tensor, rows: Rows, weights: Tensor) -> Tensor:
        return y * weights[rows.token, rows.slot].unsqueeze(1)

    def write_slots(self, slots: Tensor, rows: Rows, y: Tensor) -> None:
        slots[rows.token, rows.slot] = y

    def slot_order(self, groups: list[Rows], tiles: Sorted) -> Tensor:
        """The order in which a token's slots land, int64 `[M, k]`: that of the sorted rows, as tiles finish one by
        one.
        """
        landing = torch.empty((tiles.tokens, self.problem.topk), dtype=torch.int64, device=tiles.ids.device)
        for rows in groups:
            landing[rows.token, rows.slot] = rows.at
        return landing.argsort(dim=1)

    def combine(self, slots: Tensor, order: Tensor) -> Tensor:
        """`[M, k, H]` fp32 to bf16 `[M, H]`."""
        if self.arithmetic.slot_fp8_block:
            slots = _through_fp8(slots, self.arithmetic.slot_fp8_block)
        parts = slots.bfloat16()
        if self.arithmetic.combine == "reduce":
            return parts.float().sum(dim=1).bfloat16()
        total = torch.zeros_like(parts[:, 0])
        token = torch.arange(parts.shape[0], device=parts.device)
        for landed in order.unbind(dim=1):
            total = total + parts[token, landed]
        return total


def _scatter(values: Tensor, at: Tensor, rows: int) -> Tensor:
    full = torch.empty((rows, *values.shape[1:]), dtype=values.dtype, device=values.device)
    full.view(torch.uint8)[at] = values.view(torch.uint8)
    return full


def _through_fp8(slots: Tensor, block: int) -> Tensor:
    grouped = slots.unflatten(-1, (-1, block))
    amax = grouped.abs().amax(dim=-1, keepdim=True)
    scale = e8m0_decode(e8m0_scale(amax, Format.FP8, False, ScaleRule.ROUND_UP))
    stored: Tensor = (grouped / scale).to(fp8_dtype(False)).float() * scale
    return stored.flatten(-2)


def _kernel_activation(asked: Activation, arithmetic: Arithmetic) -> Activation:
    """The activation that the kernel runs, for the one that is asked for."""
    if Departure.ALWAYS_SILU in arithmetic.departures:
        return Activation("silu")
    if Departure.LIMIT_IGNORED in arithmetic.departures:
        return replace(asked, limit=_HARD_SWIGLU_LIMIT if asked.kind == "swiglu" else None)
    return asked


class EmulatedStages:
    """The stages of an emulated arm, alone."""

    def __init__(self, arm: EmulatedArm) -> None:
        self.arm = arm

    def first(self, call: Call) -> Tensor:
        arm, tiles, groups, weights = self._lay_out(call)
        values = arm.first_stage(call, tiles, groups, weights).dequantise()
        by_slot = values.new_empty(call.tokens * arm.problem.topk, arm.problem.logical_inter_dim)
        for rows in groups:
            by_slot[rows.token * arm.problem.topk + rows.slot] = values[rows.at, : arm.problem.logical_inter_dim]
        return by_slot

    def second(self, call: Call, intermediate: Tensor) -> Tensor:
        arm, tiles, groups, weights = self._lay_out(call)
        shape = (tiles.ids.shape[0], arm.problem.inter_dim)
        values = torch.zeros(shape, dtype=torch.float32, device=intermediate.device)
        for rows in groups:
            slot = rows.token * arm.problem.topk + rows.slot
            values[rows.at, : arm.problem.logical_inter_dim] = intermediate[slot].float()
        plain = Quantised(Spec(Format.BF16, arm._spec().q_type), values, None)
        return arm.second_stage(tiles, groups, plain, weights, None)

    def _lay_out(self, call: Call) -> tuple[EmulatedArm, Sorted, list[Rows], Tensor]:
        ids, weights = self.arm.route(call)
        tiles = sort_slots(ids, self.arm.problem.expert, self.arm.arithmetic.block_m)
        return self.arm, tiles, self.arm.group(tiles), weights
