"""Which part of a stored layer a rank holds, for a problem that may be this layer's or not."""

from __future__ import annotations

from dataclasses import dataclass

from moeshapes.checkpoint.stored import StoredLayer
from moeshapes.problem import Problem


@dataclass(frozen=True)
class Share:
    """The routed experts by their numbers, and the columns of the intermediate, that a rank holds.

    `adds_bias`: whether it adds stage 2's bias, which one rank must, since ranks' results are added.
    """

    experts: range
    columns: range
    adds_bias: bool


def is_of(layer: StoredLayer, problem: Problem) -> bool:
    """Whether the problem's widths and counts are this layer's, on some number of ranks."""
    width = problem.logical_inter_dim
    ranks = -(-layer.inter // width)
    return (
        problem.logical_model_dim == layer.width
        and -(-layer.inter // ranks) == width
        and (problem.expert - problem.shared_experts) * problem.ep == len(layer.experts)
    )


def why_not(layer: StoredLayer, problem: Problem, rank: int) -> str:
    """Why a problem of this layer cannot have its weights; empty where it can."""
    ranks = ranks_of(layer, problem)
    if rank >= ranks:
        return f"rank {rank} of {ranks} ranks"
    if problem.shared_experts > layer.shared_experts:
        there = f"{layer.shared_experts} of {layer.inter}" if layer.shared_experts else f"one of {layer.shared_inter}"
        return f"{problem.shared_experts} fused shared experts declared; the checkpoint has {there}"
    if problem.bias != layer.has_bias:
        return f"bias {'declared, but the checkpoint has none' if problem.bias else 'in the checkpoint, not declared'}"
    slots = problem.topk - problem.shared_experts
    if slots > len(layer.experts):
        return f"{slots} routed slots declared for {len(layer.experts)} experts"
    routing = layer.routing
    if slots > (kept := len(layer.experts) // routing.groups * routing.groups_kept):
        return f"{slots} routed slots declared; the router keeps {kept} experts of {routing.groups_kept} groups"
    return ""


def ranks_of(layer: StoredLayer, problem: Problem) -> int:
    return problem.ep * -(-layer.inter // problem.logical_inter_dim)


def share_of(layer: StoredLayer, problem: Problem, rank: int) -> Share:
    """The share of a rank. Ranks of one group of experts follow one another.

    The last rank has fewer columns where they do not divide, and padding in their place.
    """
    width, local = problem.logical_inter_dim, problem.expert - problem.shared_experts
    slice_of, ranks = rank % -(-layer.inter // width), -(-layer.inter // width)
    first = rank // ranks * local
    columns = range(slice_of * width, min((slice_of + 1) * width, layer.inter))
    return Share(range(first, first + local), columns, adds_bias=slice_of == 0)
