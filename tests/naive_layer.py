"""The two-stage fused MoE a second time: one token and slot after another, in numpy, from contract 6.1 and 6.2 alone.

It works at padded widths throughout, where the references work at logical ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

import naive_quant as naive
from moeshapes.arithmetic import Arithmetic
from moeshapes.problem import Activation, Problem
from moeshapes.quant import Quantised
from moeshapes.recipe import QType
from moeshapes.workload import Call, Layer
from naive_quant import Array, bf16


@dataclass(frozen=True)
class NaiveLayer:
    """A layer's weights as fp64 arrays, padding included."""

    problem: Problem
    w1: list[Array]
    w2: list[Array]
    set_of: list[int]
    bias1: Array
    bias2: Array


def naive_layer(layer: Layer) -> NaiveLayer:
    experts, rows, out = layer.problem.expert, 2 * layer.problem.inter_dim, layer.problem.model_dim
    return NaiveLayer(
        layer.problem,
        [weight_values(weight) for weight in layer.w1],
        [weight_values(weight) for weight in layer.w2],
        [int(index) for index in layer.set_of],
        np.zeros((experts, rows)) if layer.bias1 is None else layer.bias1.double().numpy(),
        np.zeros((experts, out)) if layer.bias2 is None else layer.bias2.double().numpy(),
    )


def weight_values(weight: Quantised) -> Array:
    """A weight matrix's values, fp64 `[R, K]`."""
    spec = weight.spec
    if weight.scales is None:
        return np.asarray(weight.codes.double().numpy())
    codes = naive.unpacked(weight.codes.view(torch.uint8).numpy(), spec.number.value)
    values = naive.values_of(codes, "fp8_fnuz" if spec.fnuz and spec.number.value == "fp8" else spec.number.value)
    if weight.scales.dtype is torch.uint8:
        scales = np.exp2(weight.scales.numpy().astype(np.float64) - 127)
    else:
        scales = weight.scales.double().numpy()
    if spec.q_type is QType.PER_TENSOR:
        return np.asarray(values * scales[0])
    rows, columns = values.shape[0] // scales.shape[0], values.shape[1] // scales.shape[1]
    return np.asarray(values * scales.repeat(rows, axis=0).repeat(columns, axis=1))


def run(layer: NaiveLayer, call: Call, arithmetic: Arithmetic | None) -> tuple[Array, Array]:
    """One call's output `[M, H]` and intermediate `[M * k, I]`, at padded widths, fp64; exact for None."""
    problem, topk = layer.problem, layer.problem.topk
    x = call.activations.double().numpy()
    if arithmetic is not None:
        x = _requantised(problem, x, fused=False)
    hidden = np.stack([_stage1(layer, x[t], call, t, slot) for t in range(call.tokens) for slot in range(topk)])
    if arithmetic is not None:
        rounded = hidden.astype(np.float32)
        if arithmetic.intermediate_from == "bf16":
            rounded = rounded.astype(bf16).astype(np.float32)
        hidden = _requantised(problem, rounded, arithmetic.fused_scale)
    slots = [_stage2(layer, hidden[row], call, row // topk, row % topk) for row in range(call.tokens * topk)]
    of_tokens = [slots[start : start + topk] for start in range(0, len(slots), topk)]
    return np.stack([_combined(of_token, arithmetic) for of_token in of_tokens]), hidden


def _requantised(problem: Problem, values: Array, fused: bool) -> Array:
    recipe = problem.recipe
    number = "fp8_fnuz" if problem.fnuz and recipe.a.value == "fp8" else recipe.a.value
    return naive.rounded_trip(values, number, recipe.q_type.value, fused)


def _stage1(layer: NaiveLayer, x: Array, call: Call, token: int, slot: int) -> Array:
    problem, expert = layer.problem, int(call.topk_ids[token, slot])
    before = layer.w1[layer.set_of[expert]] @ x
    if problem.doweight_stage1:
        before = before * float(call.topk_weights[token, slot])
    before = before + layer.bias1[expert]
    return activated(before[: problem.inter_dim], before[problem.inter_dim :], problem.activation)


def _stage2(layer: NaiveLayer, hidden: Array, call: Call, token: int, slot: int) -> Array:
    expert = int(call.topk_ids[token, slot])
    y = layer.w2[layer.set_of[expert]] @ hidden + layer.bias2[expert]
    return np.asarray(y if layer.problem.doweight_stage1 else y * float(call.topk_weights[token, slot]))


def activated(gate: Array, up: Array, activation: Activation) -> Array:
    if activation.limit is not None:
        gate, up = np.minimum(gate, activation.limit), np.clip(up, -activation.limit, activation.limit)
    sigmoid = 1 / (1 + np.exp(-gate))
    if activation.kind == "silu":
        return np.asarray(gate * sigmoid * up)
    if activation.kind == "gelu":
        return np.asarray([0.5 * g * (1 + math.erf(g / math.sqrt(2))) for g in gate] * up)
    if activation.kind == "swiglu":
        return np.asarray(gate / (1 + np.exp(-float(activation.alpha or 0) * gate)) * (up + 1))
    beta, linear = float(activation.beta or 0), float(activation.linear_beta or 0)
    return np.asarray(beta * np.tanh(gate / beta) * sigmoid * linear * np.tanh(up / linear))


def _combined(slots: list[Array], arithmetic: Arithmetic | None) -> Array:
    if arithmetic is None:
        return np.asarray(sum(slots))
    if arithmetic.slot_fp8_block:
        slots = [_through_fp8(slot.astype(np.float32), arithmetic.slot_fp8_block) for slot in slots]
    parts = [slot.astype(np.float32).astype(bf16).astype(np.float32) for slot in slots]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
        if arithmetic.combine == "atomic":
            total = total.astype(bf16).astype(np.float32)
    return np.asarray(total.astype(bf16), np.float64)


def _through_fp8(slot: Array, width: int) -> Array:
    found = [naive.quantise_mx(slot[start : start + width], "fp8") for start in range(0, slot.size, width)]
    return np.concatenate([naive.values_of(block.codes, "fp8") * block.scale for block in found])
