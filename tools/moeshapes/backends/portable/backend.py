"""Rows of `triton_moe*` kernels, run as named."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from moeshapes.backends.base import NotRunAsNamedError, UnsupportedRowError
from moeshapes.backends.portable import formats, kernels
from moeshapes.backends.portable.launch import launch, row_name
from moeshapes.backends.portable.quantisers import intermediate_buffers, quantise_activations
from moeshapes.backends.portable.sorting import Sorted, sort_slots
from moeshapes.kernel_name import KernelName, parse
from moeshapes.portable import default_launch, kernel_faults, why_no_kernels
from moeshapes.problem import Problem
from moeshapes.quant import Quantised, activation_spec, as_bytes
from moeshapes.recipe import Format, QType
from moeshapes.verify.lookup import NO_LOOKUP, Lookup
from moeshapes.workload import Call, Layer

_ACTIVATIONS = {"silu": kernels.SILU, "gelu": kernels.GELU, "swiglu": kernels.SWIGLU, "situv2": kernels.SITUV2}
_KINDS = {
    QType.NO: kernels.PLAIN,
    QType.PER_TOKEN: kernels.ROW,
    QType.PER_1X128: kernels.WIDE,
    QType.PER_1X32: kernels.MX,
}
_DOT_FORMATS = {Format.BF16: "bf16", Format.FP8: "e4m3", Format.FP4: "e2m1"}
_QUANTISED_OUTPUT = {None: formats.TO_BF16, "fp8": formats.TO_FP8, "fp4": formats.TO_FP4}
_SUM_TILE = 1024


class PortableBackend:
    """Backend of `portable`: emulated in Triton's interpreter and wherever there is no GPU."""

    name = "portable"

    def __init__(self) -> None:
        self.emulated = bool(formats.INTERPRETED.value) or not torch.cuda.is_available()

    def prepare(self, layer: Layer) -> PortableLayer:
        return PortableLayer(layer)


class PortableLayer:
    """Weights stacked a set after another, packed as they are."""

    def __init__(self, layer: Layer) -> None:
        refuse_recipe(layer.problem)
        self.layer = layer
        self.w1 = _stacked(layer.w1)
        self.w2 = _stacked(layer.w2)

    def arm(self, launch: Mapping[str, Any] | None, token: int, lookup: Lookup = NO_LOOKUP) -> PortableArm:
        row = launch or default_launch(self.layer.problem.recipe, token)
        first, second = (_triton_name(row[column], stage) for column, stage in (("kernelName1", 1), ("kernelName2", 2)))
        return PortableArm(self, int(row["block_m"]), first, second)


def refuse_recipe(problem: Problem) -> None:
    """Raises UnsupportedRowError where there are no kernels for the problem's recipe."""
    reason = why_no_kernels(problem.recipe, problem.fnuz)
    if reason:
        raise UnsupportedRowError(reason)


def _stacked(weights: list[Quantised]) -> Quantised:
    first = weights[0]
    scales = None if first.scales is None else torch.stack([w.scales for w in weights if w.scales is not None])
    return Quantised(first.spec, torch.stack([w.codes for w in weights]), scales)


def _triton_name(name: str, stage: int) -> KernelName:
    parsed = parse(name)
    if parsed is None or parsed.family != f"triton_moe{stage}":
        raise UnsupportedRowError(f"{name} is no stage-{stage} kernel of the portable backend")
    return parsed


@dataclass(frozen=True)
class _Tile:
    m: int
    n: int
    k: int
    warps: int
    stages: int

    @classmethod
    def of(cls, name: KernelName) -> _Tile:
        sizes = (name.tile_m, name.tile_n, name.tile_k, name.warps, name.stages)
        return cls(*(size or 0 for size in sizes))


class PortableArm:
    """One pair of kernels over a prepared layer."""

    def __init__(self, prepared: PortableLayer, block_m: int, first: KernelName, second: KernelName) -> None:
        self.prepared = prepared
        self.layer = prepared.layer
        self.problem: Problem = prepared.layer.problem
        self.block_m = block_m
        self.first = first
        self.second = second
        self.compiled: dict[int, Any] = {}
        self._refuse_mismatch()

    def _refuse_mismatch(self) -> None:
        recipe = self.problem.recipe
        for name in (self.first, self.second):
            if (name.a, name.w) != (recipe.a, recipe.w):
                raise UnsupportedRowError(f"{name.render()} does not take the formats of {recipe.name}")
            if name.tile_m != self.block_m:
                raise UnsupportedRowError(
                    f"{name.render()} reads tiles of {name.tile_m} rows, block_m is {self.block_m}"
                )
            fault = next(kernel_faults(name, recipe), "")
            if fault:
                raise UnsupportedRowError(f"{name.render()} {fault}")

    def activate(self) -> AbstractContextManager[None]:
        return nullcontext()

    def named(self) -> list[str]:
        return [self.first.render(), self.second.render()]

    def launched(self) -> list[str]:
        """By what Triton compiled of them; in its interpreter, which compiles nothing, by their names."""
        seen = [row_name(kernel) for kernel in self.compiled.values() if kernel is not None]
        if not formats.INTERPRETED.value and seen != self.named():
            raise NotRunAsNamedError(f"{' and '.join(seen) or 'no kernel'} ran, not {' and '.join(self.named())}")
        return self.named()

    def stages(self) -> PortableStages:
        return PortableStages(self)

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        tiles = sort_slots(call.topk_ids, self.problem.expert, self.block_m)
        result = self.second_stage(call, tiles, self.first_stage(call, tiles))
        if out is None:
            return result
        out[: call.tokens] = result
        return out

    # --- stage 1

    def first_stage(self, call: Call, tiles: Sorted) -> Quantised:
        """The intermediate in sorted rows; filling rows are left as they were."""
        spec = activation_spec(self.problem.recipe, self.problem.fnuz)
        codes, scales = intermediate_buffers(
            tiles.ids.shape[0], self.problem.inter_dim, spec if self.first.out_quant else None, tiles.ids.device
        )
        self._launch_first(call, tiles, quantise_activations(call.activations, spec), codes, scales)
        if self.first.out_quant or spec.is_plain:
            return Quantised(spec, codes, scales)
        return quantise_activations(codes, spec)

    def _launch_first(self, call: Call, tiles: Sorted, x: Quantised, codes: Tensor, scales: Tensor | None) -> None:
        problem, tile, activation = self.problem, _Tile.of(self.first), self.problem.activation
        self.compiled[1] = launch(
            kernels.stage1, (tiles.tiles, triton.cdiv(problem.inter_dim, tile.n)),
            *_pointers(x), *_pointers(self.prepared.w1), _or_any(self.layer.bias1, codes),
            as_bytes(codes), _or_any(scales, codes), tiles.ids, tiles.tile_expert, self.layer.set_of, call.topk_weights,
            call.tokens, problem.expert, problem.model_dim, problem.inter_dim, problem.topk,
            *_row_strides(x), *_row_strides(self.prepared.w1), *_set_strides(self.prepared.w1),
            activation.limit or 0.0, activation.alpha or 0.0, activation.beta or 1.0, activation.linear_beta or 1.0,
            **self._formats(), ACTIVATION=_ACTIVATIONS[activation.kind], HAS_LIMIT=bool(activation.limit),
            HAS_BIAS=self.layer.bias1 is not None, DOWEIGHT=problem.doweight_stage1,
            TO=_QUANTISED_OUTPUT[self.first.out_quant], **_launch_options(tile, problem.model_dim),
        )  # fmt: skip

    # --- stage 2

    def second_stage(self, call: Call, tiles: Sorted, intermediate: Quantised) -> Tensor:
        problem, device = self.problem, call.activations.device
        if self.second.mode == "atomic":
            total = torch.zeros((call.tokens, problem.model_dim), dtype=torch.float32, device=device)
            self._launch_second(call, tiles, intermediate, total)
            return total.bfloat16()
        slots = torch.empty((call.tokens * problem.topk, problem.model_dim), dtype=torch.bfloat16, device=device)
        self._launch_second(call, tiles, intermediate, slots)
        total = torch.empty((call.tokens, problem.model_dim), dtype=torch.bfloat16, device=device)
        grid = (call.tokens, triton.cdiv(problem.model_dim, _SUM_TILE))
        launch(kernels.add_slots, grid, slots, total, problem.topk, problem.model_dim, BN=_SUM_TILE)
        return total

    def _launch_second(self, call: Call, tiles: Sorted, hidden: Quantised, out: Tensor) -> None:
        problem, tile = self.problem, _Tile.of(self.second)
        self.compiled[2] = launch(
            kernels.stage2, (tiles.tiles, triton.cdiv(problem.model_dim, tile.n)),
            *_pointers(hidden), *_pointers(self.prepared.w2), _or_any(self.layer.bias2, out),
            out, tiles.ids, tiles.tile_expert, self.layer.set_of, call.topk_weights,
            call.tokens, problem.expert, problem.inter_dim, problem.model_dim, problem.topk,
            *_row_strides(hidden), *_row_strides(self.prepared.w2), *_set_strides(self.prepared.w2),
            **self._formats(), HAS_BIAS=self.layer.bias2 is not None, WEIGH=not problem.doweight_stage1,
            ATOMIC=self.second.mode == "atomic", **_launch_options(tile, problem.inter_dim),
        )  # fmt: skip

    # --- arguments

    def _formats(self) -> dict[str, Any]:
        recipe = self.problem.recipe
        return {
            "KIND": _KINDS[recipe.q_type],
            "A_FORMAT": _DOT_FORMATS[recipe.a],
            "W_FORMAT": _DOT_FORMATS[recipe.w],
            "A_PER_BYTE": 2 if recipe.a is Format.FP4 else 1,
            "W_PER_BYTE": 2 if recipe.w is Format.FP4 else 1,
        }


def _launch_options(tile: _Tile, k: int) -> dict[str, int]:
    even = k % tile.k == 0
    return {"EVEN": even, "BM": tile.m, "BN": tile.n, "BK": tile.k, "num_warps": tile.warps, "num_stages": tile.stages}


def _row_strides(matrix: Quantised) -> tuple[int, int]:
    """Of codes and scales, in elements."""
    return matrix.codes.stride(-2), 0 if matrix.scales is None else matrix.scales.stride(-2)


def _set_strides(weight: Quantised) -> tuple[int, int]:
    return weight.codes.stride(0), 0 if weight.scales is None else weight.scales.stride(0)


def _pointers(matrix: Quantised) -> tuple[Tensor, Tensor]:
    """Codes and scales, or where a kernel reads no scales some other pointer."""
    return as_bytes(matrix.codes), _or_any(matrix.scales, matrix.codes)


def _or_any(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor


class PortableStages:
    """The stages of a portable arm, alone."""

    def __init__(self, arm: PortableArm) -> None:
        self.arm = arm

    def first(self, call: Call) -> Tensor:
        tiles, row_of_slot = self._lay_out(call)
        values = self.arm.first_stage(call, tiles).dequantise()
        return values[row_of_slot, : self.arm.problem.logical_inter_dim]

    def second(self, call: Call, intermediate: Tensor) -> Tensor:
        """`intermediate` is on the recipe's grid, so that quantising it again gives the same values."""
        tiles, row_of_slot = self._lay_out(call)
        problem = self.arm.problem
        values = torch.zeros((tiles.ids.shape[0], problem.inter_dim), dtype=torch.bfloat16, device=intermediate.device)
        values[row_of_slot, : problem.logical_inter_dim] = intermediate.bfloat16()
        spec = activation_spec(problem.recipe, problem.fnuz)
        return self.arm.second_stage(call, tiles, quantise_activations(values, spec))

    def _lay_out(self, call: Call) -> tuple[Sorted, Tensor]:
        """The tiles, and the sorted row of each (token * k + slot)."""
        topk = self.arm.problem.topk
        tiles = sort_slots(call.topk_ids, self.arm.problem.expert, self.arm.block_m)
        token, slot = (tiles.ids & 0xFFFFFF).long(), (tiles.ids >> 24).long()
        live = (token < call.tokens).nonzero().flatten()
        row_of_slot = torch.empty(call.tokens * topk, dtype=torch.int64, device=live.device)
        row_of_slot[token[live] * topk + slot[live]] = live
        return tiles, row_of_slot
