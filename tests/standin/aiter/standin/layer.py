"""The layer that a plan states, in fp32, expert by expert in the order of sorted rows (contract 6.1 and 6.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .call import Call
from .numbers import Rounding, rounded
from .plan import Activation, Plan
from .weights import Weight, require_zero_pads

_SWIGLU_ALPHA = 1.702
_Decoded = dict[int, tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Rows:
    """Slots of one local expert: `flat` = token * k + slot, int64."""

    expert: int
    flat: Tensor


class Layer:
    """One call's computation; stage by stage, so that each can be launched by itself."""

    def __init__(self, call: Call, plan: Plan, weights: tuple[Weight, Weight], unwritten_pads: bool) -> None:
        self.call, self.plan = call, plan
        self.unwritten_pads = unwritten_pads
        self.live = call.tokens if call.num_local_tokens is None else int(call.num_local_tokens)
        self.rows = list(_rows(call, self.live))
        self.decoded: _Decoded = {}
        for rows in self.rows:
            w1, w2 = (weight.expert(rows.expert) for weight in weights)
            require_zero_pads(call, rows.expert, w1, w2)
            self.decoded[rows.expert] = w1, w2
        self.route_weight = call.topk_weight.flatten().unsqueeze(1)

    def first(self) -> Tensor:
        """The intermediate before it is rounded to codes: `[M * k, I]`, fp32 or on the grid of bf16."""
        call, first = self.call, self.plan.first
        x = rounded(call.hidden_states.float(), first.feed)
        hidden = torch.zeros((call.tokens * call.topk, call.inter_dim))
        for rows in self.rows:
            gate_up = x[rows.flat // call.topk] @ self.decoded[rows.expert][0].T
            if call.doweight_stage1:
                gate_up = gate_up * self.route_weight[rows.flat]
            if first.bias and call.bias1 is not None:
                gate_up = gate_up + call.bias1[rows.expert]
            gate, up = gate_up.split(call.inter_dim, dim=1)
            hidden[rows.flat] = activated(gate, up, first.activation)
        return hidden if first.fused else hidden.bfloat16().float()

    def second(self, hidden: Tensor) -> Tensor:
        """The output, bf16 `[M, H]`; rows past `num_local_tokens` are as they were allocated."""
        call, second = self.call, self.plan.second
        h = self._as_stage2_reads(hidden)
        combine = _Sum(call, second.slot_columns) if second.reduces else _Atomics(call)
        for rows in self.rows:
            y = h[rows.flat] @ self.decoded[rows.expert][1].T
            if second.bias and call.bias2 is not None:
                y = y + call.bias2[rows.expert]
            combine.add(rows, y if call.doweight_stage1 else y * self.route_weight[rows.flat])
        out = torch.full((call.tokens, call.model_dim), torch.nan, dtype=torch.bfloat16)
        out[: self.live] = combine.total()[: self.live]
        out[: self.live, second.written :] = torch.nan
        return out

    def _as_stage2_reads(self, hidden: Tensor) -> Tensor:
        h = rounded(hidden, self.plan.hidden)
        if self.unwritten_pads and self.call.intermediate_pad:
            h = torch.cat((h[:, : -self.call.intermediate_pad], torch.empty(len(h), self.call.intermediate_pad)), dim=1)
        return h


def _rows(call: Call, live: int) -> Iterator[Rows]:
    """Slots of real tokens by local expert; experts of other ranks are left out."""
    local = call.topk_ids.flatten().long()
    if call.expert_mask is not None:
        index = call.expert_mask.cumsum(0).long() - 1
        local = torch.where(call.expert_mask[local] != 0, index[local], torch.full_like(local, -1))
    local = local[: live * call.topk]
    for expert in local.unique().tolist():
        if expert >= 0:
            yield Rows(expert, (local == expert).nonzero().flatten())


def activated(gate: Tensor, up: Tensor, how: Activation) -> Tensor:
    """act(gate) combined with up, both clamped first."""
    gate, up = gate.clamp(max=how.limit), up.clamp(-how.limit, how.limit)
    act: dict[str, Callable[[], Tensor]] = {
        "silu": lambda: gate * torch.sigmoid(gate) * up,
        "gelu": lambda: gate * 0.5 * (1 + torch.erf(gate / 2**0.5)) * up,
        "swiglu": lambda: gate * torch.sigmoid(_SWIGLU_ALPHA * gate) * (up + 1),
        "situv2": lambda: (
            how.beta * torch.tanh(gate / how.beta) * torch.sigmoid(gate)
            * how.linear_beta * torch.tanh(up / how.linear_beta)
        ),
    }  # fmt: skip
    return act[how.kind]()


class _Atomics:
    """Slots added into a zeroed bf16 output, in the order in which experts finish."""

    def __init__(self, call: Call) -> None:
        self.topk = call.topk
        self.out = torch.zeros((call.tokens, call.model_dim), dtype=torch.bfloat16)

    def add(self, rows: Rows, y: Tensor) -> None:
        slots = rows.flat % self.topk
        for slot in slots.unique().tolist():  # a token may be with an expert twice, in different slots
            own = slots == slot
            token = rows.flat[own] // self.topk
            self.out[token] = self.out[token] + y[own].bfloat16()

    def total(self) -> Tensor:
        return self.out


class _Sum:
    """Slots stored as bf16 (or as fp8 under small blocks' scales), then summed in fp32. Slots of no local expert: 0."""

    def __init__(self, call: Call, columns: int) -> None:
        self.slots = torch.zeros((call.tokens * call.topk, call.model_dim))
        self.topk, self.columns = call.topk, columns

    def add(self, rows: Rows, y: Tensor) -> None:
        self.slots[rows.flat] = (
            rounded(y, Rounding("fp8", f"1x{self.columns}")) if self.columns else y.bfloat16().float()
        )

    def total(self) -> Tensor:
        return self.slots.view(-1, self.topk, self.slots.shape[1]).sum(dim=1).bfloat16()
