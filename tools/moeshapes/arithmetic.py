"""What arithmetic a row's kernels state by their names: how the intermediate is rounded and how slots are combined.

Plain data, no torch. Sources: contract 4 (names), 6.2 (intermediate re-quantisation), 3.6 (what runs where no row is).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from moeshapes.kernel_name import KernelName, parse
from moeshapes.recipe import Format, QType, Recipe


class Departure(str, Enum):
    """What a kernel does otherwise than the layer asks, without complaint (contract 3.4)."""

    LIMIT_IGNORED = "the kernel ignores the model's swiglu_limit"
    BIAS_DROPPED = "the kernel drops the experts' biases"
    ALWAYS_SILU = "the kernel runs SiLU whatever the activation"


@dataclass(frozen=True)
class Arithmetic:
    """The rounding steps between the exact result and a kernel's.

    intermediate_from: `bf16` where stage 1 writes bf16 and a quantiser follows, `fp32` where its epilogue quantises.
    fused_scale: the fused epilogue's e8m0 rule rather than the quantiser's.
    combine: `reduce` (bf16 a slot, summed in fp32) or `atomic` (bf16 adds into the output).
    slot_fp8_block: columns that share an e8m0 scale where slots are stored as fp8 before the sum, 0 where they are not.
    modelled: False where a kernel's rounding is not known well enough to compare with it (one-stage assembly, opus,
    cktile, fp4 slots).
    departures: faults of the kernel, not roundings: emulated, and in no reference.
    """

    block_m: int
    intermediate_from: str = "bf16"
    fused_scale: bool = False
    combine: str = "atomic"
    slot_fp8_block: int = 0
    modelled: bool = True
    departures: tuple[Departure, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


_OPUS_SLOT_COLUMNS = 8


def arithmetic_of(launch: Mapping[str, Any], recipe: Recipe) -> Arithmetic:
    """The arithmetic of a row's launch fields (row.LAUNCH_COLUMNS)."""
    first, second = parse(launch["kernelName1"] or ""), parse(launch["kernelName2"] or "")
    block_m = max(int(launch["block_m"]), 1)
    if first is None or (second is None and launch["kernelName2"]):
        return Arithmetic(block_m, modelled=False)
    names = [name for name in (first, second) if name is not None]
    departures = tuple(d for d in Departure if any(d in _departures(name) for name in names))
    if launch["run_1stage"]:
        return Arithmetic(block_m, intermediate_from="fp32", modelled=False, departures=departures)
    fused = _is_fused(first, second, recipe)
    return Arithmetic(
        block_m=block_m,
        intermediate_from="fp32" if fused else "bf16",
        fused_scale=fused and first.family == "flydsl_moe1",
        combine=_combine(first, second),
        slot_fp8_block=_OPUS_SLOT_COLUMNS if names[-1].slot_quant == "fp8" else 0,
        modelled=not any(_is_opaque(name) for name in names),
        departures=departures,
    )


def default_arithmetic(recipe: Recipe, token: int) -> Arithmetic:
    """What AITER's heuristics run without a row: separate quantiser, atomics, block_m by token tier."""
    return Arithmetic(block_m=_default_block_m(recipe, token))


def _default_block_m(recipe: Recipe, token: int) -> int:
    if recipe.q_type is QType.PER_1X128:
        return 64 if token > 32 else 16
    if recipe.w is Format.INT4:
        return 16 if token < 2048 else 32 if token < 16384 else 64
    if recipe.q_type is QType.PER_1X32:
        return 32 if token < 2048 else 64 if token < 4096 or token >= 16384 else 128
    return 32


def _is_fused(first: KernelName, second: KernelName | None, recipe: Recipe) -> bool:
    if not recipe.quantises_activations:
        return False
    writes_blocks = first.family == "asm_stage1" and recipe.q_type is QType.PER_1X128
    forced = second is not None and second.family == "moe2_layout"
    return bool(first.out_quant) or writes_blocks or forced


def _combine(first: KernelName, second: KernelName | None) -> str:
    name = second or first
    always_atomic = name.family == "flydsl_moe2" and name.a is Format.BF16
    return "atomic" if always_atomic else name.mode or "atomic"


def _is_opaque(name: KernelName) -> bool:
    return name.family.startswith(("opus", "cktile")) or name.f4out


def _departures(name: KernelName) -> set[Departure]:
    if name.family == "mxmoe_g1":
        return set(Departure)
    if name.family == "flydsl_moe1":
        return _flydsl_departures(name)
    if name.family == "cktile_label":
        return {Departure.LIMIT_IGNORED}
    if name.family not in ("ck_gemm", "asm_1stage", "asm_stage1", "mxmoe_g2", "moe2_layout"):
        return set()
    # A second stage never sees the limit: the activation is behind it.
    return {Departure.BIAS_DROPPED} if name.stage == 2 else {Departure.LIMIT_IGNORED, Departure.BIAS_DROPPED}


def _flydsl_departures(name: KernelName) -> set[Departure]:
    if name.a is Format.BF16:
        return {Departure.LIMIT_IGNORED, Departure.BIAS_DROPPED}
    return set() if name.w is Format.FP4 else {Departure.BIAS_DROPPED}
