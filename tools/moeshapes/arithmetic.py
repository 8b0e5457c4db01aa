"""What arithmetic a row's kernels state by their names: how the intermediate is rounded and how slots are combined.

Plain data, no torch. Sources: contract 4 (names), 6.2 (intermediate re-quantisation), 3.6 (what runs where no row is).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from moeshapes.kernel_name import KernelName, parse
from moeshapes.recipe import QType, Recipe


@dataclass(frozen=True)
class Arithmetic:
    """The rounding steps between the exact result and a kernel's.

    intermediate_from: `bf16` where stage 1 writes bf16 and a quantiser follows, `fp32` where its epilogue quantises.
    fused_scale: the fused epilogue's e8m0 rule rather than the quantiser's.
    combine: `reduce` (bf16 a slot, summed in fp32) or `atomic` (bf16 adds into the output).
    slot_fp8_block: columns that share an e8m0 scale where slots are stored as fp8 before the sum, 0 where they are not.
    modelled: False where a kernel's rounding is not known well enough to compare with it (hand-written assembly, opus).
    """

    block_m: int
    intermediate_from: str = "bf16"
    fused_scale: bool = False
    combine: str = "atomic"
    slot_fp8_block: int = 0
    modelled: bool = True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


_OPUS_SLOT_COLUMNS = 8


def arithmetic_of(launch: Mapping[str, Any], recipe: Recipe) -> Arithmetic:
    """The arithmetic of a row's launch fields (row.LAUNCH_COLUMNS)."""
    first, second = parse(launch["kernelName1"] or ""), parse(launch["kernelName2"] or "")
    block_m = max(int(launch["block_m"]), 1)
    if first is None or (second is None and launch["kernelName2"]):
        return Arithmetic(block_m, modelled=False)
    if launch["run_1stage"]:
        return Arithmetic(block_m, intermediate_from="fp32", modelled=False)
    fused = _is_fused(first, second, recipe)
    return Arithmetic(
        block_m=block_m,
        intermediate_from="fp32" if fused else "bf16",
        fused_scale=fused and first.family == "flydsl_moe1",
        combine=_combine(first, second),
        slot_fp8_block=_OPUS_SLOT_COLUMNS if _stores_fp8_slots(second) else 0,
        modelled=not any(_is_opaque(name) for name in (first, second)),
    )


def default_arithmetic(recipe: Recipe, token: int) -> Arithmetic:
    """What AITER's heuristics run without a row: separate quantiser, atomics, block_m by token tier."""
    return Arithmetic(block_m=_default_block_m(recipe, token))


def _default_block_m(recipe: Recipe, token: int) -> int:
    if recipe.q_type is QType.PER_1X128:
        return 64 if token > 32 else 16
    if recipe.q_type is QType.PER_1X32:
        return 32 if token < 2048 else 64 if token < 4096 or token >= 16384 else 128
    return 32


def _is_fused(first: KernelName, second: KernelName | None, recipe: Recipe) -> bool:
    if not recipe.quantises_activations:
        return False
    writes_blocks = first.family == "asm_stage1" and recipe.q_type is QType.PER_1X128
    forced = second is not None and second.family == "moe2_layout"
    return bool(first.out_quant) or first.family in ("mxmoe_g1", "opus_moe1") or writes_blocks or forced


def _combine(first: KernelName, second: KernelName | None) -> str:
    name = second or first
    if name.family == "flydsl_moe2" and name.a is not None and name.a.value == "bf16":
        return "atomic"
    if name.family in ("flydsl_moe2", "moe2_layout"):
        return name.mode or "atomic"
    if name.family == "mxmoe_g2":
        return "atomic" if name.mode == "atomic" else "reduce"
    if name.family == "opus_moe2":
        return "atomic" if name.mode == "atomic" else "reduce"
    return "atomic"


def _stores_fp8_slots(second: KernelName | None) -> bool:
    return second is not None and second.family == "opus_moe2" and second.out_quant == "fp8"


def _is_opaque(name: KernelName | None) -> bool:
    return name is not None and (name.family.startswith(("opus", "cktile")) or name.f4out)
