"""The lies over the portable backend: Triton kernels that do one thing wrong, or right ones that are given wrong data.

All of them can be captured in a graph: nothing asks the device, and what counts runs counts on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor

from faulty_kernels import add_slots_in_turn, spoil_every_tenth
from moeshapes.backends.portable import backend, kernels
from moeshapes.backends.portable.backend import PortableArm, PortableLayer
from moeshapes.backends.portable.launch import launch
from moeshapes.backends.portable.sorting import Sorted
from moeshapes.problem import Problem
from moeshapes.quant import Quantised, as_bytes, largest
from moeshapes.recipe import Format, QType
from moeshapes.verify.lookup import NO_LOOKUP, Lookup
from moeshapes.verify.plan import counts_of
from moeshapes.workload import Call, Layer
from sensitivity import lies

# --- arms that launch wrongly


class LyingArm(PortableArm):
    """An arm that knows the bucket that it is for."""

    bucket = 0


class PadUnwritten(LyingArm):
    """Stage 1's grid ends with the logical columns: the padded ones keep what memory held."""

    def _launch_first(self, *arguments: Any) -> None:
        with patch.object(backend, "launch", self._launch_fewer):
            super()._launch_first(*arguments)

    def _launch_fewer(self, kernel: Any, grid: tuple[int, int], *arguments: Any, **options: Any) -> Any:
        columns = triton.cdiv(self.problem.logical_inter_dim, options["BN"])
        return launch(kernel, (grid[0], columns), *arguments, **options)


class _OneTokenLess(Call):
    @property
    def tokens(self) -> int:
        return self.activations.shape[0] - 1


class LastTokenDropped(LyingArm):
    """Both stages are told of one token less: the last one's slots are never written."""

    def _launch_first(self, call: Call, *rest: Any) -> None:
        super()._launch_first(_shortened(call), *rest)

    def _launch_second(self, call: Call, *rest: Any) -> None:
        super()._launch_second(_shortened(call), *rest)


def _shortened(call: Call) -> Call:
    return _OneTokenLess(call.activations, call.topk_ids, call.topk_weights)


class WrongAtSmallest(LyingArm):
    """Routing weights are three per cent too large, at the bucket's smallest token count alone."""

    def _launch_second(self, call: Call, *rest: Any) -> None:
        wrong = call.tokens == min(counts_of(self.bucket))
        super()._launch_second(_reweighted(call, 1.03) if wrong else call, *rest)


class WeightTwice(LyingArm):
    """The routing weight is applied twice."""

    def _launch_second(self, call: Call, *rest: Any) -> None:
        super()._launch_second(_reweighted(call, call.topk_weights), *rest)


class SharedMissing(LyingArm):
    """The fused shared expert adds nothing."""

    def _launch_second(self, call: Call, *rest: Any) -> None:
        routed = call.topk_ids < self.problem.expert - self.problem.shared_experts
        super()._launch_second(_reweighted(call, routed), *rest)


def _reweighted(call: Call, factor: Tensor | float) -> Call:
    return replace(call, topk_weights=call.topk_weights * factor)


class ExpertTruncated(LyingArm):
    """Expert indices are cut to eight bits."""

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        return super().run(replace(call, topk_ids=call.topk_ids & 0xFF), out)


class HiddenPadLeaks(LyingArm):
    """The activations' padding holds the row's first columns again; `_pad_that_counts` does as much to the weights."""

    def first_stage(self, call: Call, tiles: Sorted) -> Quantised:
        leaking = call.activations.clone()
        leaking[:, self.problem.logical_model_dim :] = leaking[:, : self.problem.hidden_pad]
        return super().first_stage(replace(call, activations=leaking), tiles)


class ColumnsDropped(LyingArm):
    """32 columns of the intermediate are zero."""

    def first_stage(self, call: Call, tiles: Sorted) -> Quantised:
        hidden = super().first_stage(call, tiles)
        as_bytes(hidden.codes)[:, _bytes_of(hidden, slice(32, 64))] = 0
        return hidden


class Stale(LyingArm):
    """The output of the call before comes back: it lies in a buffer that is kept, one a shape."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kept = dict[torch.Size, Tensor]()

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        result = super().run(call)
        # Made by an eager run: what a capture allocates belongs to its graph.
        kept = self.kept.setdefault(result.shape, result.clone())
        stale = kept.clone()
        kept.copy_(result)
        if out is None:
            return stale
        out[: call.tokens] = stale
        return out


class _Counting(LyingArm):
    """Counts on the device, where replays of a graph count too."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.counter = torch.zeros(1, dtype=torch.int32, device=self.layer.device)


class NanOnceInTen(_Counting):
    """One value of every tenth run is NaN."""

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        result = super().run(call, out)
        launch(spoil_every_tenth, (1,), result, self.counter)
        return result


class RowPastEnd(LyingArm):
    """The row after the last token of an out buffer is written too."""

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        result = super().run(call, out)
        if out is not None:
            out[call.tokens] = 0
        return result


class OrderVaries(_Counting):
    """No lie: slots are added in another order each time, as by atomics. To be reported, not failed."""

    def second_stage(self, call: Call, tiles: Sorted, intermediate: Quantised) -> Tensor:
        self.counter.add_(1)
        with patch.object(backend, "launch", self._launch_in_turn):
            return super().second_stage(call, tiles, intermediate)

    def _launch_in_turn(self, kernel: Any, grid: tuple[int, int], *arguments: Any, **options: Any) -> Any:
        if kernel is not kernels.add_slots:
            return launch(kernel, grid, *arguments, **options)
        slots, total, *sizes = arguments
        return launch(add_slots_in_turn, grid, slots, total, self.counter, *sizes, **options)


# --- layers that are laid out wrongly


def _bytes_of(matrix: Quantised, columns: slice) -> slice:
    """Where these columns lie in a row of codes."""
    packed = 2 if matrix.spec.number is Format.FP4 else 1
    return slice(columns.start // packed, columns.stop // packed)


def _block_off(name: str, prepared: PortableLayer, victim: int) -> PortableLayer:
    """The victim's `w1` or `w2` with a middle K block one exponent too high."""
    weight: Quantised = getattr(prepared, name)
    problem = prepared.layer.problem
    block, k = problem.k_block, problem.logical_model_dim if name == "w1" else problem.logical_inter_dim
    index, number = int(prepared.layer.set_of[victim]), k // block // 2
    off = Quantised(weight.spec, weight.codes.clone(), None if weight.scales is None else weight.scales.clone())
    if off.scales is not None and weight.spec.q_type in (QType.PER_1X32, QType.PER_1X128):
        scales = off.scales[index, :, number]
        scales.copy_(scales + 1 if scales.dtype is torch.uint8 else scales * 2)
    else:
        codes = off.codes[index, :, number * block : (number + 1) * block]
        as_bytes(codes).copy_(as_bytes(_doubled(codes, weight)))
    return _changed(prepared, **{name: off})


def _doubled(codes: Tensor, weight: Quantised) -> Tensor:
    """As far as the format goes."""
    values = codes.float() * 2
    if weight.spec.number is Format.FP8:
        top = largest(weight.spec.number, weight.spec.fnuz)
        values = values.clamp(-top, top)
    return values.to(codes.dtype)


def _gate_up_swapped(prepared: PortableLayer, victim: int) -> PortableLayer:
    w1, layer = prepared.w1, prepared.layer
    codes = _halves_swapped(as_bytes(w1.codes)).view(w1.codes.dtype)
    scales = None if w1.scales is None else _halves_swapped(w1.scales)
    bias = None if layer.bias1 is None else _halves_swapped(layer.bias1)
    return _changed(prepared, w1=Quantised(w1.spec, codes, scales), layer=replace(layer, bias1=bias))


def _halves_swapped(rows: Tensor) -> Tensor:
    """`[sets, 2I, …]` with the gate's rows and the up's in each other's place."""
    return rows.roll(rows.shape[1] // 2, dims=1)


def _pad_that_counts(prepared: PortableLayer, victim: int) -> PortableLayer:
    """w1's padded columns hold its first ones again."""
    problem, w1 = prepared.layer.problem, prepared.w1
    pad, first = slice(problem.logical_model_dim, problem.model_dim), slice(0, problem.hidden_pad)
    leaking = Quantised(w1.spec, w1.codes.clone(), None if w1.scales is None else w1.scales.clone())
    codes = as_bytes(leaking.codes)
    codes[:, :, _bytes_of(w1, pad)] = codes[:, :, _bytes_of(w1, first)]
    if leaking.scales is not None and w1.spec.q_type is QType.PER_1X32:
        leaking.scales[:, :, pad.start // 32 :] = leaking.scales[:, :, : first.stop // 32]
    return _changed(prepared, w1=leaking)


def _with_problem(changed: Callable[[Problem], Problem], prepared: PortableLayer, victim: int) -> PortableLayer:
    return _changed(prepared, layer=replace(prepared.layer, problem=changed(prepared.layer.problem)))


def _without_limit(problem: Problem) -> Problem:
    return replace(problem, activation=replace(problem.activation, limit=None))


def _weighted_elsewhere(problem: Problem) -> Problem:
    return replace(problem, doweight_stage1=not problem.doweight_stage1)


def _without_bias(prepared: PortableLayer, victim: int) -> PortableLayer:
    return _changed(prepared, layer=replace(prepared.layer, bias1=None, bias2=None))


def _as_it_is(prepared: PortableLayer, victim: int) -> PortableLayer:
    return prepared


def _changed(prepared: PortableLayer, **changes: Quantised | Layer) -> PortableLayer:
    twin = copy(prepared)
    for name, value in changes.items():
        setattr(twin, name, value)
    return twin


# --- the lies


@dataclass(frozen=True)
class Way:
    """How a lie is told: by which arm, over a layer changed in which way. `alter` is given an expert that is hit."""

    arm: type[LyingArm] = LyingArm
    alter: Callable[[PortableLayer, int], PortableLayer] = _as_it_is


WAYS = {
    "PadUnwritten": Way(PadUnwritten),
    "BlockOffInStage1": Way(alter=partial(_block_off, "w1")),
    "BlockOffInStage2": Way(alter=partial(_block_off, "w2")),
    "LastTokenDropped": Way(LastTokenDropped),
    "WrongAtSmallest": Way(WrongAtSmallest),
    "GateUpSwapped": Way(alter=_gate_up_swapped),
    "WeightTwice": Way(WeightTwice),
    "WeightInOtherStage": Way(alter=partial(_with_problem, _weighted_elsewhere)),
    "SharedMissing": Way(SharedMissing),
    "ExpertTruncated": Way(ExpertTruncated),
    "HiddenPadLeaks": Way(HiddenPadLeaks, _pad_that_counts),
    "LimitIgnored": Way(alter=partial(_with_problem, _without_limit)),
    "BiasIgnored": Way(alter=_without_bias),
    "Stale": Way(Stale),
    "NanOnceInTen": Way(NanOnceInTen),
    "ColumnsDropped": Way(ColumnsDropped),
    "RowPastEnd": Way(RowPastEnd),
}
HONEST = Way()
ORDER_VARIES = Way(OrderVaries)
APPLIES: dict[str, Callable[[Problem], bool]] = {lie.name: lie.applies for lie in lies.LIES}


@dataclass
class LyingLayer:
    """A prepared layer whose arms of rows lie; what runs without a row is honest."""

    honest: PortableLayer
    way: Way
    victim: int
    altered: PortableLayer = field(init=False)

    def __post_init__(self) -> None:
        self.altered = self.way.alter(self.honest, self.victim)

    def arm(self, launch: Mapping[str, Any] | None, token: int, lookup: Lookup = NO_LOOKUP) -> PortableArm:
        honest = self.honest.arm(launch, token)
        if launch is None:
            return honest
        lying = self.way.arm(self.altered, honest.block_m, honest.first, honest.second)
        lying.bucket = token
        return lying
