"""Compiling what a row launches before anything is there to launch it on: on torch's `meta` device, which has no memory.

Triton compiles anew for another type, for an int that is 1 or divisible by 16, and for a pointer that is not aligned to
16 bytes. Tensors without memory read as address 0, as aligned as all that torch allocates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from moeshapes.backends.portable.backend import PortableLayer, refuse_recipe
from moeshapes.backends.portable.launch import compiling
from moeshapes.problem import Problem
from moeshapes.quant import Quantised, code_dtype, weight_scale_shape, weight_spec
from moeshapes.recipe import QType
from moeshapes.workload import Call, Layer

_META = torch.device("meta")


def compile_row(problem: Problem, launch: Mapping[str, Any] | None, token: int, counts: Sequence[int]) -> list[str]:
    """Puts all that a row launches at bucket `token` into Triton's cache, for calls of `counts` tokens each.

    `launch` as for PortableLayer.arm. Returns the names of both stages as compiled. Raises what Triton raises, and
    UnsupportedRowError or NotRunAsNamedError as the arm does. Needs a GPU's driver, and none of its memory.
    """
    arm = PortableLayer(meta_layer(problem)).arm(launch, token)
    with torch.inference_mode(), compiling():
        for tokens in counts:
            arm.run(meta_call(problem, tokens))
    return arm.launched()


def meta_layer(problem: Problem) -> Layer:
    """A layer of workload.draw_layer's types and shapes, every expert with weights of its own.

    Raises UnsupportedRowError for a recipe that has no kernels.
    """
    refuse_recipe(problem)
    h, i, experts = problem.model_dim, problem.inter_dim, problem.expert
    return Layer(
        problem=problem,
        w1=[_weight(problem, 2 * i, h)] * experts,
        w2=[_weight(problem, h, i)] * experts,
        set_of=_empty((experts,), torch.int64),
        bias1=_empty((experts, 2 * i), torch.float32) if problem.bias else None,
        bias2=_empty((experts, h), torch.float32) if problem.bias else None,
        amplitude=1.0,
        channel_gain=_empty((h,), torch.float32),
    )


def meta_call(problem: Problem, tokens: int) -> Call:
    """A call of workload.draw_calls' types and shapes."""
    slots = (tokens, problem.topk)
    activations = _empty((tokens, problem.model_dim), torch.bfloat16)
    return Call(activations, _empty(slots, torch.int32), _empty(slots, torch.float32))


def _weight(problem: Problem, rows: int, k: int) -> Quantised:
    """A matrix `[rows, k]` as quant.Quantised has it, of the recipes that have portable kernels."""
    spec = weight_spec(problem.recipe, problem.fnuz)
    codes = _empty((rows, k // spec.number.per_byte), code_dtype(spec))
    shape = weight_scale_shape(spec, rows, k)
    scales = None if shape is None else _empty(shape, torch.uint8 if spec.q_type is QType.PER_1X32 else torch.float32)
    return Quantised(spec, codes, scales)


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=_META)
