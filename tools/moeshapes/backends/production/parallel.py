"""Expert parallelism: the expert mask of one rank, and routing to the experts of all ranks.

Global experts are the routed ones of all ranks, then the fused shared ones, then one that no rank has: AITER takes its
slot off the top-k of the key, so that callers append one that is always masked (contract 3.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from moeshapes.problem import Problem
from moeshapes.workload import Call

_REMOTE_WEIGHT = 0.5
"""Of slots that this rank must leave out: it would show if it did not."""


@dataclass(frozen=True)
class Routing:
    """topk_ids int32 and topk_weights fp32 as `fused_moe` takes them, expert_mask int32 or None without ranks."""

    topk_ids: Tensor
    topk_weights: Tensor
    expert_mask: Tensor | None


def routing_of(problem: Problem, call: Call) -> Routing:
    """A call's routing; under expert parallelism with global expert ids and the sentinel's slot.

    A slot of weight zero is given to an expert of another rank and a weight that is not zero: what it adds is nothing
    either way, but now it is the mask that leaves it out. Not where weights are applied in stage 1, before a bias.
    """
    if problem.ep == 1:
        return Routing(call.topk_ids, call.topk_weights, None)
    ranks = _Ranks(problem)
    weights = call.topk_weights
    away = torch.zeros_like(weights, dtype=torch.bool) if problem.doweight_stage1 else weights == 0
    ids = torch.where(away, ranks.elsewhere(call.topk_ids), ranks.here(call.topk_ids))
    column = (call.tokens, 1)
    return Routing(
        torch.cat((ids, ids.new_full(column, ranks.sentinel)), dim=1).int().contiguous(),
        torch.cat((weights.masked_fill(away, _REMOTE_WEIGHT), weights.new_full(column, _REMOTE_WEIGHT)), dim=1),
        ranks.mask(ids.device),
    )


class _Ranks:
    """This rank's experts among those of all: never the first rank's, whose ids are the same here and everywhere."""

    def __init__(self, problem: Problem) -> None:
        self.routed_here = problem.expert - problem.shared_experts
        self.routed = self.routed_here * problem.ep
        self.first = self.routed_here * (problem.ep // 2)
        self.sentinel = self.routed + problem.shared_experts

    def mask(self, device: torch.device) -> Tensor:
        """int32, 1 for this rank's experts; the shared ones are every rank's."""
        mask = torch.zeros(self.sentinel + 1, dtype=torch.int32, device=device)
        mask[self.first : self.first + self.routed_here] = 1
        mask[self.routed : self.sentinel] = 1
        return mask

    def here(self, ids: Tensor) -> Tensor:
        """Global ids of this rank's experts."""
        return torch.where(ids < self.routed_here, ids + self.first, ids - self.routed_here + self.routed)

    def elsewhere(self, ids: Tensor) -> Tensor:
        """Experts of the next rank; the sentinel for shared experts, which other ranks may take for their tokens."""
        next_rank = (ids + self.first + self.routed_here) % self.routed
        return torch.where(ids < self.routed_here, next_rank, torch.full_like(ids, self.sentinel))
