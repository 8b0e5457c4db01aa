"""Mistakes of a production backend, to be planted in it one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from moeshapes.backends.production import tensors
from moeshapes.backends.production.backend import ProductionArm, ProductionLayer, arguments_of
from moeshapes.backends.production.layout import ScaleLayout, WeightLayout, layout_of
from moeshapes.backends.production.library import Library
from moeshapes.backends.production.parallel import Routing, routing_of
from moeshapes.backends.production.tensors import Weights, kernel_ready
from moeshapes.problem import Problem
from moeshapes.quant import Quantised
from moeshapes.verify.lookup import Lookup
from moeshapes.workload import Layer
from production import MODEL_DIM, judgements

Plant = Callable[[pytest.MonkeyPatch], None]
BACKEND, TENSORS = "moeshapes.backends.production.backend", "moeshapes.backends.production.tensors"


def variable(name: str, value: str) -> Plant:
    """Set once AITER is imported."""
    return lambda patch: patch.setenv(name, value)


def weights(change: Callable[[Weights], Weights]) -> Plant:
    """In what is handed to `fused_moe`."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(f"{BACKEND}.kernel_ready", lambda layer, library: change(kernel_ready(layer, library)))

    return plant


def before_shuffle(change: Callable[[Layer], Layer]) -> Plant:
    """In the layer, before anything is shuffled."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(f"{BACKEND}.kernel_ready", lambda layer, library: kernel_ready(change(layer), library))

    return plant


def laid_out(**changes: Any) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(f"{TENSORS}.layout_of", lambda problem: replace(layout_of(problem), **changes))

    return plant


def called(**changes: Any) -> Plant:
    """With other arguments."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        def arguments(problem: Problem, library: Library) -> dict[str, Any]:
            others = {name: value(problem) if callable(value) else value for name, value in changes.items()}
            return {**arguments_of(problem, library), **others}

        patch.setattr(f"{BACKEND}.arguments_of", arguments)

    return plant


def routed(change: Callable[[Routing], Routing]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(f"{BACKEND}.routing_of", lambda problem, call: change(routing_of(problem, call)))

    return plant


def biases(change: Callable[[Tensor], Tensor]) -> Plant:
    """Of the layer that calls read; its weights stay."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        honest = ProductionLayer.__init__

        def init(self: ProductionLayer, layer: Layer, library: Library) -> None:
            honest(self, layer, library)
            assert layer.bias1 is not None
            assert layer.bias2 is not None
            self.layer = replace(layer, bias1=change(layer.bias1), bias2=change(layer.bias2))

        patch.setattr(ProductionLayer, "__init__", init)

    return plant


def each_w1(change: Callable[[Tensor], Tensor]) -> Callable[[Layer], Layer]:
    """Applied to the rows of codes and of scales alike."""

    def changed(weight: Quantised) -> Quantised:
        scales = None if weight.scales is None else change(weight.scales)
        return Quantised(weight.spec, _by_bytes(change, weight.codes), scales)

    return lambda layer: replace(layer, w1=[changed(weight) for weight in layer.w1])


def _by_bytes(change: Callable[[Tensor], Tensor], codes: Tensor) -> Tensor:
    """fp8 has few operators of its own."""
    return change(codes.view(torch.uint8)).view(codes.dtype) if codes.element_size() == 1 else change(codes)


# --- the mistakes


def one_row_in_turn(rows: Tensor) -> Tensor:
    """Rows in such an order that 16 and 16 in turn come out as one and one: the layout of another architecture."""
    gate, up = rows.chunk(2)
    alternating = torch.stack((gate, up), dim=1).flatten(0, 1)
    ordered: Tensor = alternating.unflatten(0, (-1, 2, 16)).transpose(0, 1).flatten(0, 2)
    return ordered


def swapped(rows: Tensor) -> Tensor:
    return torch.cat(rows.chunk(2)[::-1])


def pads_first(pad: int) -> Callable[[Tensor], Tensor]:
    """Each half's padded rows before its live ones."""
    return lambda rows: torch.cat([half.roll(pad, 0) for half in rows.chunk(2)])


def unmarked(weights: Weights) -> Weights:
    """A view is another tensor object, without the mark."""
    return replace(weights, w1=weights.w1.view(weights.w1.shape), w2=weights.w2.view(weights.w2.shape))


def half_marked(weights: Weights) -> Weights:
    return replace(weights, w2=weights.w2.view(weights.w2.shape))


def copied(weights: Weights) -> Weights:
    """A stack of the shuffled experts, marked anew."""
    w1 = torch.stack(list(weights.w1.view(torch.uint8))).view(weights.w1.dtype)
    w1.is_shuffled = True  # type: ignore[attr-defined]
    return replace(weights, w1=w1)


def plain_scales(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tensors, "_e8m0", lambda rows, experts, layout, library: rows)


def plain_second_weight(patch: pytest.MonkeyPatch) -> None:
    """For layers whose weights differ in rows and columns."""
    honest = tensors._shuffled

    def shuffled(weight: Quantised, layout: WeightLayout, library: Library) -> Tensor:
        is_second = weight.codes.shape[1] == MODEL_DIM
        return weight.codes.view(library.dtypes.fp4x2) if is_second else honest(weight, layout, library)

    patch.setattr(tensors, "_shuffled", shuffled)


def packed_in_pairs(patch: pytest.MonkeyPatch) -> None:
    """As fp4 is: the even K index in the low nibble."""

    def pairs(weight: Quantised, library: Library) -> Tensor:
        values = library.shuffle.shuffle_weight(tensors._one_a_byte(weight.codes), (16, 16)).view(torch.uint8) & 0xF
        packed: Tensor = (values[..., 0::2] | (values[..., 1::2] << 4)).view(torch.int8)
        return packed.view(library.dtypes.i4x2)

    patch.setattr(tensors, "_int4", pairs)


def scale_rows_apart(patch: pytest.MonkeyPatch) -> None:
    """int4 scales in the order in which they were quantised."""
    honest = tensors._scale

    def scale(weight: Quantised, layout: ScaleLayout, library: Library) -> Tensor | None:
        if layout is ScaleLayout.INT4 and weight.scales is not None:
            return weight.scales.transpose(1, 2).contiguous().view(-1)
        return honest(weight, layout, library)

    patch.setattr(tensors, "_scale", scale)


def foreign_fp8(patch: pytest.MonkeyPatch) -> None:
    """The same codes as the other flavour, past the backend's own guard."""
    patch.setattr(tensors, "_require_own_fp8", lambda weight, library: None)
    other = before_shuffle(
        lambda layer: replace(layer, w1=[_as_fn(w) for w in layer.w1], w2=[_as_fn(w) for w in layer.w2])
    )
    other(patch)


def _as_fn(weight: Quantised) -> Quantised:
    return replace(weight, codes=weight.codes.view(torch.uint8).view(torch.float8_e4m3fn))


def caches_kept(other: Mapping[str, Any]) -> Plant:
    """Of another arm, which ran in the same process before."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Library, "fresh_caches", lambda library: nullcontext())
        honest = ProductionLayer.arm

        def arm(prepared: ProductionLayer, fields: Any, token: int, lookup: Lookup) -> ProductionArm:
            judgements(honest(prepared, other, token, lookup), prepared)
            return honest(prepared, fields, token, lookup)

        patch.setattr(ProductionLayer, "arm", arm)

    return plant


def no_table(patch: pytest.MonkeyPatch) -> None:
    """AITER goes on with its own tables."""
    patch.setattr(f"{BACKEND}.served", lambda table: nullcontext())


def off_by_one(routing: Routing) -> Routing:
    """The rank's first expert left out, and the next rank's first one taken; the shared one and the sentinel stay."""
    assert routing.expert_mask is not None
    routed, others = routing.expert_mask[:-2], routing.expert_mask[-2:]
    return replace(routing, expert_mask=torch.cat((routed.roll(1), others)))


def sentinel_unmasked(routing: Routing) -> Routing:
    assert routing.expert_mask is not None
    return replace(routing, expert_mask=torch.cat((routing.expert_mask[:-1], torch.ones(1, dtype=torch.int32))))


def without_sentinel(routing: Routing) -> Routing:
    return replace(
        routing,
        topk_ids=routing.topk_ids[:, :-1].contiguous(),
        topk_weights=routing.topk_weights[:, :-1].contiguous(),
    )


def without_mask(routing: Routing) -> Routing:
    return replace(without_sentinel(routing), expert_mask=None)


def wide_ids(routing: Routing) -> Routing:
    return replace(routing, topk_ids=routing.topk_ids.long())


def shared_first(layer: Layer) -> Layer:
    return replace(layer, set_of=layer.set_of.roll(1))
