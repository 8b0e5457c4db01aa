"""A workload's layer with the weights of a checkpoint's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moeshapes.checkpoint.fitting import finite, fitted
from moeshapes.checkpoint.index import open_index
from moeshapes.checkpoint.reader import Reader, padded, read_matrix
from moeshapes.checkpoint.router import Router
from moeshapes.checkpoint.share import Share, is_of, share_of, why_not
from moeshapes.checkpoint.stored import Expert, StoredLayer, stored_layer
from moeshapes.problem import Problem
from moeshapes.quant import Quantised, weight_spec
from moeshapes.workload import Layer, pool_size, require_whole_blocks


def read_layer(folder: Path, name: str, problem: Problem, rank: int, max_elements: int, device: torch.device) -> Layer:
    """The layer of that name, or end of a name, as `rank` holds it under `problem`.

    As many routed experts are read as `max_elements` allows, and others share their weights; all where it allows all.
    Raises CheckpointError where the checkpoint cannot be read, ValueError where the problem is not of this layer.
    """
    stored = stored_layer(open_index(folder), name)
    reason = why_not(stored, problem, rank) if is_of(stored, problem) else "the layer has other widths or experts"
    if reason:
        raise ValueError(f"{name} cannot have these weights: {reason}")
    require_whole_blocks(problem)
    with Reader(stored.index) as reader:
        return _Assembly(stored, problem, share_of(stored, problem, rank), reader, max_elements).layer(rank, device)


@dataclass
class _Assembly:
    """Puts one rank's layer together. `anew` has what was quantised anew, and how often."""

    stored: StoredLayer
    problem: Problem
    share: Share
    reader: Reader
    max_elements: int
    anew: dict[str, int] = field(default_factory=dict)

    def layer(self, rank: int, device: torch.device) -> Layer:
        problem = self.problem
        routed = problem.expert - problem.shared_experts
        sets = min(pool_size(problem, self.max_elements), routed)
        pairs = [self._expert(self.stored.experts[self.share.experts[number]]) for number in range(sets)]
        pairs += [self._shared_expert(number) for number in range(problem.shared_experts)]
        of_shared = torch.arange(sets, sets + problem.shared_experts)
        router = self._router(device)
        return Layer(
            problem=problem,
            w1=[_on(first, device) for first, _ in pairs],
            w2=[_on(second, device) for _, second in pairs],
            set_of=torch.cat((torch.arange(routed) % sets, of_shared)).to(device),
            bias1=self._bias("bias1", self._bias1, 2 * problem.inter_dim, device),
            bias2=self._bias("bias2", self._bias2, problem.model_dim, device),
            amplitude=router.amplitude,
            channel_gain=router.channel_gain,
            front=router.draw,
            origin=self._origin(rank, sets),
        )

    def _origin(self, rank: int, sets: int) -> Mapping[str, Any]:
        """What was read, in bytes, and what became of it."""
        index, reader = self.stored.index, self.reader
        return {
            "layer": self.stored.prefix,
            "rank": rank,
            "checkpoint": index.fingerprint(self.stored.shards),
            "experts_read": sets,
            "tensors_read": len(reader.tensors),
            "bytes_read": reader.bytes_read,
            "header_bytes": reader.header_bytes,
            "checkpoint_bytes": index.total_bytes(),
            "quantised_anew": dict(self.anew),
        }

    def _expert(self, expert: Expert) -> tuple[Quantised, Quantised]:
        return self._fitted(expert, "routed", self.share.columns, self.stored.inter)

    def _shared_expert(self, number: int) -> tuple[Quantised, Quantised]:
        """One of as many experts of the routed ones' width as the shared one is wide."""
        assert self.stored.shared is not None
        start = number * self.stored.inter
        columns = range(start + self.share.columns.start, start + self.share.columns.stop)
        return self._fitted(self.stored.shared, "shared", columns, self.stored.shared_inter)

    def _fitted(self, expert: Expert, kind: str, columns: range, inter: int) -> tuple[Quantised, Quantised]:
        problem = self.problem
        spec = weight_spec(problem.recipe, problem.fnuz)
        w1, first = fitted(self._gate_and_up(expert, columns, inter), problem.inter_dim, problem.model_dim, spec)
        down = read_matrix(self.reader, expert.down, range(expert.down.form.rows), columns)
        w2, second = fitted([down], problem.model_dim, problem.inter_dim, spec)
        for name, anew in ((f"{kind} w1", first), (f"{kind} w2", second)):
            if anew:
                self.anew[name] = self.anew.get(name, 0) + 1
        return w1, w2

    def _gate_and_up(self, expert: Expert, columns: range, inter: int) -> list[Quantised | Tensor]:
        """Gate's rows and up's rows of w1."""
        width = range(expert.gate.form.k)
        if expert.gate.codes != expert.up.codes:
            return [read_matrix(self.reader, matrix, columns, width) for matrix in (expert.gate, expert.up)]
        if not self.stored.layout.interleaved:
            up = range(inter + columns.start, inter + columns.stop)
            return [read_matrix(self.reader, expert.gate, rows, width) for rows in (columns, up)]
        both = read_matrix(self.reader, expert.gate, range(2 * columns.start, 2 * columns.stop), width)
        return [_every_other(both, half) for half in (0, 1)]

    def _bias(self, name: str, read: Callable[[Tensor], Tensor], width: int, device: torch.device) -> Tensor | None:
        """Biases of the rank's experts, padded, fp32 `[E, width]`: zero for shared experts."""
        if not self.problem.bias:
            return None
        own = self.share.experts
        stored = finite(self.reader.read(self.stored.tensors[name], slice(own.start, own.stop)).float())
        return padded(read(stored), self.problem.expert, width).to(device)

    def _bias1(self, stored: Tensor) -> Tensor:
        """Of `[E, 2I]`, the rank's columns of gate, then of up, each padded."""
        columns, inter = self.share.columns, self.stored.inter
        halves = (stored[:, 0::2], stored[:, 1::2]) if self.stored.layout.interleaved else stored.split(inter, dim=1)
        own = [half[:, columns.start : columns.stop] for half in halves]
        return torch.cat([padded(half, half.shape[0], self.problem.inter_dim) for half in own], dim=1)

    def _bias2(self, stored: Tensor) -> Tensor:
        return stored if self.share.adds_bias else torch.zeros_like(stored)

    def _router(self, device: torch.device) -> Router:
        names = ("norm", "router", "router_bias", "correction", "shared_gate", "latent")
        entries = {name: self.stored.tensors[name] for name in names if name in self.stored.tensors}
        tensors = {name: finite(self.reader.read(entry).float()).to(device) for name, entry in entries.items()}
        experts = len(self.stored.experts)
        if "table" in self.stored.tensors:
            table = self.reader.read(self.stored.tensors["table"]).long()
            if (
                table.shape[1] < self.problem.topk - self.problem.shared_experts
                or not 0 <= int(table.min()) <= int(table.max()) < experts
            ):
                raise ValueError(f"the table of experts of {self.stored.prefix} names others than its {experts}")
            tensors["table"] = table.to(device)
        return Router(self.problem, self.stored.routing, self.share, tensors, experts)


def _every_other(matrix: Quantised | Tensor, first: int) -> Quantised | Tensor:
    """Every second row: as codes where scales are of single rows or of all, else, out of their blocks, as values."""
    if not isinstance(matrix, Quantised):
        return matrix[first::2]
    scales = matrix.scales
    by_row = scales is not None and scales.shape[0] == matrix.codes.shape[0] and scales.dim() > 1
    if scales is not None and scales.numel() > 1 and not by_row:
        return matrix.dequantise()[first::2]
    return Quantised(matrix.spec, matrix.codes[first::2], scales[first::2] if scales is not None and by_row else scales)


def _on(weight: Quantised, device: torch.device) -> Quantised:
    scales = None if weight.scales is None else weight.scales.to(device)
    return Quantised(weight.spec, weight.codes.to(device), scales)
