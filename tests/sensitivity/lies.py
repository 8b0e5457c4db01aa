"""Stand-in backends that lie, one fault each: the emulated arm with one step replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from moeshapes.arithmetic import Arithmetic
from moeshapes.backends.emulate import EmulatedArm, EmulatedLayer, Rows, Sorted
from moeshapes.problem import Problem
from moeshapes.verify.lookup import NO_LOOKUP, Lookup
from moeshapes.verify.plan import counts_of
from moeshapes.workload import Call


class PadUnwritten(EmulatedArm):
    """Stage 1 leaves the padded columns of the intermediate as they were."""

    def write_intermediate(self, written: Tensor, rows: Rows, values: Tensor) -> None:
        live = self.problem.logical_inter_dim
        written[rows.at, :live] = values[:, :live].to(written.dtype)


class _OneExpert(EmulatedArm):
    """Lies about one expert: the first that the first call asks for."""

    victim = -1

    def route(self, call: Call) -> tuple[Tensor, Tensor]:
        if self.victim < 0:
            self.victim = int(call.topk_ids[0, 0])
        return super().route(call)

    def again(self, values: Tensor, weight: Tensor, expert: Tensor) -> Tensor:
        """What a middle K block adds, once more, for the victim's rows: its scale read one exponent too high."""
        block = self.problem.k_block
        first = values.shape[1] // block // 2 * block
        span = slice(first, first + block)
        return (values[:, span] @ weight[:, span].T) * (expert == self.victim)[:, None]


class BlockOffInStage1(_OneExpert):
    """One K block of one expert is off by one exponent in stage 1."""

    def preactivation(self, x: Tensor, rows: Rows) -> Tensor:
        weight = self.prepared.w1[rows.set_index]
        return super().preactivation(x, rows) + self.again(x[rows.token], weight, rows.expert)


class BlockOffInStage2(_OneExpert):
    """One K block of one expert is off by one exponent in stage 2."""

    def second_gemm(self, hidden: Tensor, rows: Rows, weights: Tensor) -> Tensor:
        again = self.again(hidden[rows.at], self.prepared.w2[rows.set_index], rows.expert)
        if not self.problem.doweight_stage1:
            again = self.weigh(again, rows, weights)
        return super().second_gemm(hidden, rows, weights) + again


class _KnowsBucket(EmulatedArm):
    """Lies at some token counts of its bucket."""

    bucket = 0


class LastTokenDropped(_KnowsBucket):
    """The last token of a full bucket comes back as zeros."""

    def combine(self, slots: Tensor, order: Tensor) -> Tensor:
        result = super().combine(slots, order)
        if result.shape[0] == self.bucket:
            result[-1] = 0
        return result


class WrongAtSmallest(_KnowsBucket):
    """Three per cent too much, at the bucket's smallest token count alone."""

    def combine(self, slots: Tensor, order: Tensor) -> Tensor:
        smallest = slots.shape[0] == min(counts_of(self.bucket))
        return super().combine(slots * 1.03 if smallest else slots, order)


class GateUpSwapped(EmulatedArm):
    """Gate and up change places."""

    def split_gate_up(self, pre: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = super().split_gate_up(pre)
        return up, gate


class WeightTwice(EmulatedArm):
    """The routing weight is applied twice."""

    def write_slots(self, slots: Tensor, rows: Rows, y: Tensor) -> None:
        super().write_slots(slots, rows, self.weigh(y, rows, self.weights))

    def route(self, call: Call) -> tuple[Tensor, Tensor]:
        self.weights = call.topk_weights
        return super().route(call)


class WeightInOtherStage(EmulatedArm):
    """The routing weight is applied in the other stage."""

    def __init__(self, prepared: EmulatedLayer, arithmetic: Arithmetic) -> None:
        super().__init__(prepared, arithmetic)
        self.problem = replace(self.problem, doweight_stage1=not self.problem.doweight_stage1)


class SharedMissing(EmulatedArm):
    """The fused shared expert adds nothing."""

    def second_gemm(self, hidden: Tensor, rows: Rows, weights: Tensor) -> Tensor:
        routed = rows.expert < self.problem.expert - self.problem.shared_experts
        return super().second_gemm(hidden, rows, weights) * routed[:, None]


class ExpertTruncated(EmulatedArm):
    """Expert indices are cut to eight bits."""

    def route(self, call: Call) -> tuple[Tensor, Tensor]:
        ids, weights = super().route(call)
        return ids & 0xFF, weights


class LimitIgnored(EmulatedArm):
    """Gate and up are not clamped."""

    def __init__(self, prepared: EmulatedLayer, arithmetic: Arithmetic) -> None:
        super().__init__(prepared, arithmetic)
        self.activation = replace(self.activation, limit=torch.inf)


class BiasIgnored(EmulatedArm):
    """Biases are dropped."""

    def __init__(self, prepared: EmulatedLayer, arithmetic: Arithmetic) -> None:
        super().__init__(prepared, arithmetic)
        self.drops_bias = True


class HiddenPadLeaks(EmulatedArm):
    """Stage 1's K loop runs on into the padding, where it meets the row's first columns again."""

    def preactivation(self, x: Tensor, rows: Rows) -> Tensor:
        pad = self.problem.hidden_pad
        leak = x[rows.token, :pad] @ self.prepared.w1[rows.set_index][:, :pad].T
        return super().preactivation(x, rows) + leak


class Stale(EmulatedArm):
    """The output of the call before comes back, where it has the right size."""

    last: Tensor | None = None

    def combine(self, slots: Tensor, order: Tensor) -> Tensor:
        result = super().combine(slots, order)
        stale, self.last = self.last, result
        return result if stale is None or stale.shape != result.shape else stale


class NanOnceInTen(EmulatedArm):
    """One value of every tenth run is NaN."""

    runs = 0

    def combine(self, slots: Tensor, order: Tensor) -> Tensor:
        result = super().combine(slots, order)
        self.runs += 1
        if self.runs % 10 == 0:
            result[0, 0] = torch.nan
        return result


class ColumnsDropped(EmulatedArm):
    """32 columns of the intermediate are zero."""

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        values = super().gated(gate, up)
        values[:, 32:64] = 0
        return values


class RowPastEnd(EmulatedArm):
    """The row after the last token of an out buffer is written too."""

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        result = super().run(call, out)
        if out is not None:
            out[call.tokens] = 0
        return result


class OrderVaries(EmulatedArm):
    """No lie: slots land in another order each time, as atomics do. To be reported, not failed."""

    runs = 0

    def slot_order(self, groups: list[Rows], tiles: Sorted) -> Tensor:
        self.runs += 1
        return super().slot_order(groups, tiles).roll(self.runs, dims=1)


@dataclass(frozen=True)
class Lie:
    """A fault, and which problems it can show in."""

    arm: type[EmulatedArm]
    applies: Callable[[Problem], bool] = lambda problem: True

    @property
    def name(self) -> str:
        return self.arm.__name__


LIES = (
    Lie(PadUnwritten, lambda problem: problem.intermediate_pad > 0),
    Lie(BlockOffInStage1),
    Lie(BlockOffInStage2),
    Lie(LastTokenDropped),
    Lie(WrongAtSmallest),
    Lie(GateUpSwapped),
    Lie(WeightTwice),
    Lie(WeightInOtherStage),
    Lie(SharedMissing, lambda problem: problem.shared_experts > 0),
    Lie(ExpertTruncated, lambda problem: problem.expert > 256),
    Lie(HiddenPadLeaks, lambda problem: problem.hidden_pad > 0),
    Lie(LimitIgnored, lambda problem: bool(problem.activation.limit)),
    Lie(BiasIgnored, lambda problem: problem.bias),
    Lie(Stale),
    Lie(NanOnceInTen),
    Lie(ColumnsDropped),
    Lie(RowPastEnd),
)


class LyingLayer:
    """An honestly prepared layer whose arms lie."""

    def __init__(self, honest: EmulatedLayer, arm: type[EmulatedArm]) -> None:
        self.honest = honest
        self.lying = arm

    def arm(self, launch: Mapping[str, Any] | None, token: int, lookup: Lookup = NO_LOOKUP) -> EmulatedArm:
        honest = self.honest.arm(launch, token)
        lying = self.lying(self.honest, honest.arithmetic)
        if isinstance(lying, _KnowsBucket):
            lying.bucket = token
        return lying
