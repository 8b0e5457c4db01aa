"""Runs one call: refuses what is wrong with it, then launches what was chosen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import symbols
from .call import Call
from .checks import check
from .functions import MOEMetadata
from .layer import Layer
from .numbers import Rounding
from .plan import Plan
from .refusal import require
from .settings import SETTINGS
from .stages import plan_of
from .trace import Launch, running
from .weights import weights_of

Bench = list[tuple[str, Callable[[], Any]]]


def launch(call: Call, a: torch.dtype, metadata: MOEMetadata, bench: Bench | None) -> Tensor:
    """The layer's output. `bench` gets each stage as a callable, as AITER's hook does."""
    check(call, a)
    if metadata.output_aux and call.expert_mask is not None:
        raise NotImplementedError("MXFP4 a4w4 FlyDSL port does not support expert-parallel yet")
    block = call.block_size_M or metadata.block_m
    require(block == metadata.block_m, f"block_size_M {block} sorts for other kernels: theirs is {metadata.block_m}")
    plan = plan_of(call, a, metadata)
    lie = SETTINGS.lies_about("unwritten_pads") and plan.first.skips_pads
    layer = Layer(call, plan, weights_of(call, plan.first.interleaved), lie)
    _prepare(plan, adaptive=metadata.output_aux)
    first = partial(_first, layer, plan)
    if bench is not None:
        bench.append(("stage1", first))
    hidden = first()
    if not plan.second.launches:
        return layer.second(hidden)
    if plan.first.fused is None:
        _helper(_quantiser(plan.hidden))
    second = partial(_second, layer, plan, hidden)
    if bench is not None:
        bench.append(("stage2", second))
    return second()


def _prepare(plan: Plan, adaptive: bool) -> None:
    _helper(symbols.SORT_ADAPTIVE if adaptive else symbols.SORT)
    _helper(_quantiser(plan.first.feed))


def _quantiser(how: Rounding) -> str:
    return symbols.QUANT.get(how.group, symbols.QUANT_ROWS) if how.number else ""


def _helper(symbol: str) -> None:
    if symbol:
        with running(Launch(0, symbol)):
            pass


def _first(layer: Layer, plan: Plan) -> Tensor:
    with running(plan.first.launch):
        return layer.first()


def _second(layer: Layer, plan: Plan, hidden: Tensor) -> Tensor:
    with ExitStack() as stack:
        for one in plan.second.launches:
            stack.enter_context(running(one))
        return layer.second(hidden)
