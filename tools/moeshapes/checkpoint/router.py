"""A checkpoint's router and norm: activations as its layer sees them, sent to experts as it sends them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import linear, pad, softplus

from moeshapes.checkpoint.routing import Routing
from moeshapes.checkpoint.share import Share
from moeshapes.problem import Problem

_BEST_OF_GROUP = 2
"""How many scores of a group are added to rank it, where there is a correction bias."""
_TINY = 1e-20


class Router:
    """`tensors` are fp32, by the names of layouts.Layout, `table` int64; those that the layer has not are left out.

    Its `draw` is a workload.Front: noise through the RMSNorm, so with the gains of its weight, scored by the router.
    """

    def __init__(
        self, problem: Problem, routing: Routing, share: Share, tensors: Mapping[str, Tensor], experts: int
    ) -> None:
        self.problem, self.routing, self.share, self.experts = problem, routing, share, experts
        self.tensors = tensors
        self.norm = tensors["norm"] + (1.0 if routing.zero_centred_norm else 0.0)

    @property
    def channel_gain(self) -> Tensor:
        """The RMS of each channel that experts read, fp32 `[H]`, padded."""
        latent = self.tensors.get("latent")
        gain = self.norm if latent is None else (latent * self.norm).norm(dim=1)
        return pad(gain, (0, self.problem.hidden_pad))

    @property
    def amplitude(self) -> float:
        return float(self.channel_gain[: self.problem.logical_model_dim].square().mean().sqrt())

    def draw(self, tokens: int, production: bool, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Activations fp32 `[M, H]`, ids int32 and weights fp32 `[M, k]`. Plain tokens have no channel's gain."""
        width = self.norm.shape[0]
        noise = torch.randn((tokens, width), generator=generator, device=self.norm.device)
        unit = noise * (width**0.5 / noise.norm(dim=1, keepdim=True).clamp(min=1e-6))
        x = (unit * (self.norm if production else self.norm.square().mean().sqrt())).bfloat16().float()
        ids, weights = self.route(x, generator)
        latent = self.tensors.get("latent")
        read = x if latent is None else linear(x, latent)
        return pad(read, (0, self.problem.hidden_pad)), ids, weights

    def route(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Experts and weights of activations `[M, H]` before any latent projection; shared experts come last."""
        scores = self.scores(x)
        chosen = self._chosen(scores, generator)
        weights = scores.gather(1, chosen)
        if self.routing.renormalise:
            weights = weights / (weights.sum(dim=1, keepdim=True) + _TINY)
        ids, weights = self._local(chosen, weights * self.routing.scaling)
        problem, tokens = self.problem, x.shape[0]
        shared = torch.arange(problem.expert - problem.shared_experts, problem.expert, device=x.device)
        shared_gate = self.tensors.get("shared_gate")
        weight = torch.ones((tokens, 1), device=x.device) if shared_gate is None else linear(x, shared_gate).sigmoid()
        ids = torch.cat((ids, shared.expand(tokens, -1)), dim=1)
        weights = torch.cat((weights, weight.expand(-1, problem.shared_experts)), dim=1)
        return ids.int().contiguous(), weights.contiguous()

    def scores(self, x: Tensor) -> Tensor:
        logits = linear(x, self.tensors["router"], self.tensors.get("router_bias"))
        if self.routing.scoring == "softmax":
            return logits.softmax(dim=1)
        return logits.sigmoid() if self.routing.scoring == "sigmoid" else softplus(logits).sqrt()

    def _chosen(self, scores: Tensor, generator: torch.Generator) -> Tensor:
        """The experts of each token: the best by corrected scores, or those of a random token of the table."""
        slots = self.problem.topk - self.problem.shared_experts
        table = self.tensors.get("table")
        if table is not None:
            tokens = torch.randint(0, table.shape[0], scores.shape[:1], generator=generator, device=scores.device)
            return table[tokens, :slots]
        correction = self.tensors.get("correction")
        choice = scores if correction is None else scores + correction
        if self.routing.groups > 1:
            choice = self._within_groups(choice, correction is not None)
        return choice.topk(slots, dim=1).indices

    def _within_groups(self, choice: Tensor, corrected: bool) -> Tensor:
        """Scores, those of all but the best groups out of reach."""
        grouped = choice.unflatten(1, (self.routing.groups, -1))
        best = grouped.topk(min(_BEST_OF_GROUP, grouped.shape[2]) if corrected else 1, dim=2).values.sum(dim=2)
        kept = best.topk(self.routing.groups_kept, dim=1).indices
        mask = torch.ones_like(best, dtype=torch.bool).scatter(1, kept, False)
        masked: Tensor = grouped.masked_fill(mask.unsqueeze(2), -torch.inf)
        return masked.flatten(1)

    def _local(self, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Experts by their place on this rank. Slots of other ranks' go to idle experts of its own with weight 0, which
        adds what a masked slot adds: nothing.
        """
        own = self.share.experts
        if len(own) == self.experts:
            return chosen, weights
        held = (chosen >= own.start) & (chosen < own.stop)
        local = (chosen - own.start).where(held, 0)
        busy = torch.zeros((chosen.shape[0], len(own)), dtype=torch.int8, device=chosen.device)
        busy.scatter_add_(1, local, held.to(torch.int8))
        idle = busy.argsort(dim=1, stable=True)
        turn = (~held).cumsum(dim=1) - 1
        stand_in = idle.gather(1, turn.clamp(min=0) % len(own))
        return local.where(held, stand_in), weights.where(held, 0.0)
