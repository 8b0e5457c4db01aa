"""A layer's tensors as `fused_moe` wants them, by contract 5.1 alone and with the stand-in's own functions.

What tests of the stand-in start from. The production backend's own way is another, and never used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from moeshapes.quant import Quantised
from moeshapes.recipe import Format, QType
from moeshapes.workload import Call, Layer

Arguments = dict[str, Any]


def arguments_of(layer: Layer, call: Call) -> Arguments:
    """Every argument of the call, under an installed stand-in."""
    aiter, problem = import_module("aiter"), layer.problem
    activation, passed = problem.activation, problem.pads_as_arguments
    w1, w1_scale = _ready(layer, layer.w1, interleaved=problem.interleave)
    w2, w2_scale = _ready(layer, layer.w2, interleaved=False)
    return {
        "hidden_states": call.activations,
        "w1": w1,
        "w2": w2,
        "topk_weight": call.topk_weights,
        "topk_ids": call.topk_ids,
        "activation": getattr(aiter.ActivationType, activation.kind.capitalize()),
        "quant_type": getattr(aiter.QuantType, problem.recipe.q_type.value),
        "doweight_stage1": problem.doweight_stage1,
        "w1_scale": w1_scale,
        "w2_scale": w2_scale,
        "hidden_pad": problem.hidden_pad if passed else 0,
        "intermediate_pad": problem.intermediate_pad if passed else 0,
        "bias1": layer.bias1,
        "bias2": layer.bias2,
        "swiglu_limit": activation.limit,
        "beta": activation.beta,
        "linear_beta": activation.linear_beta,
        "gate_mode": "interleave" if problem.interleave else "separated",
    }


def codes_of(weight: Quantised) -> Tensor:
    """Codes as AITER's quantisers give them: one int4 a byte, fp4 as packed pairs."""
    if weight.spec.number is Format.INT4:
        pairs = torch.stack((weight.codes & 0xF, weight.codes >> 4), dim=-1).flatten(-2).to(torch.int8)
        return torch.where(pairs > 7, pairs - 16, pairs)
    return weight.codes.view(torch.float4_e2m1fn_x2) if weight.spec.number is Format.FP4 else weight.codes


def stacked(layer: Layer, weights: Sequence[Quantised]) -> tuple[Tensor, Tensor | None]:
    """Codes `[E, rows, K]` and scales `[E, ...]`."""
    of_expert = [weights[int(index)] for index in layer.set_of]
    codes = [codes_of(weight) for weight in of_expert]
    plain = torch.stack([c.view(torch.uint8) if c.element_size() == 1 else c for c in codes]).view(codes[0].dtype)
    scales = [weight.scales for weight in of_expert if weight.scales is not None]
    return plain, torch.stack(scales) if scales else None


def _ready(layer: Layer, weights: Sequence[Quantised], interleaved: bool) -> tuple[Tensor, Tensor | None]:
    shuffle, fp4_utils = import_module("aiter.ops.shuffle"), import_module("aiter.utility.fp4_utils")
    codes, scales = stacked(layer, weights)
    recipe = layer.problem.recipe
    if recipe.w is Format.INT4:
        assert scales is not None
        return _int4(codes, scales)
    mixed = recipe.q_type is QType.PER_1X32 and recipe.a is not Format.FP4
    ready = shuffle.shuffle_weight_a16w4(codes, 16, interleaved) if mixed else shuffle.shuffle_weight(codes, (16, 16))
    if recipe.q_type is not QType.PER_1X32:
        return ready, scales
    assert scales is not None
    rows = scales.flatten(0, 1)
    if mixed and not (recipe.w is Format.FP8 and weights is layer.w2):
        return ready, shuffle.shuffle_scale_a16w4(rows, len(layer.set_of), interleaved)
    return ready, fp4_utils.e8m0_shuffle(rows)


def _int4(codes: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    shuffle = import_module("aiter.ops.shuffle")
    packed = shuffle.pack_int8_to_packed_int4(shuffle.shuffle_weight(codes, (16, 16)))
    ready = packed.view(codes.shape[0], codes.shape[1], -1).view(import_module("aiter").dtypes.i4x2)
    by_group = scales.transpose(1, 2).contiguous()
    return ready, shuffle.shuffle_scale_for_int4(by_group, 32).view(-1).contiguous()
