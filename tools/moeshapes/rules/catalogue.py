"""Rules about kernels that AITER's registries do not hold. Checked against AITER e4048607a5 (contract 4.1, 4.3)."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.findings import Finding
from moeshapes.kernel_name import KernelName
from moeshapes.recipe import Format
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

NOT_REGISTERED = Rule(
    "MOE312", "not-registered", Severity.WARNING,
    what="A kernel's name follows the grammar, but AITER e4048607a5 registers no kernel with such a tile or suffix.",
    why="FlyDSL and mxmoe names are looked up, not decoded: a name that is not registered stops the server at start.",
    fix="Confirm the name with the AITER that will serve it.",
)  # fmt: skip

_STAGE1_TILE_M = (32, 64, 128)
_STAGE1_TILE_M_SMALL = (16, *_STAGE1_TILE_M)
_MXMOE_G1 = frozenset(
    {(32, False, False), (32, True, False), (64, False, False), (128, False, False), (16, True, True)}
)
"""Legal (tile M, _nt, _f16in)."""
_MXMOE_G2_TILE_M = {"atomic": (16, 32, 64), "f4out": (128,), "cshuffle": (32, 64, 128), "plain": (128,)}


@check
def registered(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        name = f"cannot confirm kernelName{column} `{kernel.render()}`"
        for problem in _PROBLEMS.get(kernel.family, _none)(kernel):
            yield subject.finding(NOT_REGISTERED, f"{name}: AITER e4048607a5 registers {problem}")


def _none(kernel: KernelName) -> Iterator[str]:
    return iter(())


def _one_of(field: str, value: int | None, legal: tuple[int, ...]) -> Iterator[str]:
    if value not in legal:
        yield f"{field} {', '.join(map(str, legal))}, not {value}"


def _stage1(kernel: KernelName) -> Iterator[str]:
    mx = kernel.a is not Format.BF16
    small = kernel.w is Format.INT4 or (kernel.a, kernel.w) == (Format.FP8, Format.FP4)
    yield from _one_of("tile M", kernel.tile_m, _STAGE1_TILE_M_SMALL if small else _STAGE1_TILE_M)
    yield from _one_of("tile K", kernel.tile_k, (256,) if mx else (128, 256))
    if mx:
        yield from _one_of("tile N", kernel.tile_n, _stage1_tile_n(kernel))
    yield from _one_of("`_kw`", kernel.kw, (1, 2, 4) if not mx or kernel.tile_m == 32 else (1,))
    yield from _one_of("`_w`", kernel.waves_per_eu, (1, 2, 3, 4))
    yield from _one_of("`_kb`", kernel.kb, (1, 2, 4, 7, 14))
    grid_slices = kernel.kb != 1
    if grid_slices and (kernel.a, kernel.tile_m, kernel.waves_per_eu) != (Format.FP4, 32, 3):
        yield "`_kb` with fp4 activations, tile M 32 and `_w3` alone"
    if "_go" in kernel.render() and not grid_slices:
        yield "`_go` with `_kb` alone"


def _stage1_tile_n(kernel: KernelName) -> tuple[int, ...]:
    if (kernel.tile_m or 0) <= 32:
        return (32, 64, 128)
    return (64, 128) if kernel.a is Format.FP4 else (128, 256)


def _stage2(kernel: KernelName) -> Iterator[str]:
    yield from _one_of("tile N", kernel.tile_n, (128, 256) if kernel.w is Format.FP4 else (128,))
    yield from _one_of("tile K", kernel.tile_k, (128, 256))


def _mxmoe_stage1(kernel: KernelName) -> Iterator[str]:
    if (kernel.tile_m, kernel.nt, kernel.f16in) not in _MXMOE_G1:
        yield "tile M 16 with `_f16in_nt`, 32 with or without `_nt`, 64 and 128 plain"


def _mxmoe_stage2(kernel: KernelName) -> Iterator[str]:
    words = kernel.render().split("_")
    epilogue = next((word for word in ("atomic", "f4out", "cshuffle") if word in words), "plain")
    yield from _one_of(f"tile M of the {epilogue} epilogue", kernel.tile_m, _MXMOE_G2_TILE_M[epilogue])


_PROBLEMS = {
    "flydsl_moe1": _stage1,
    "flydsl_moe2": _stage2,
    "mxmoe_g1": _mxmoe_stage1,
    "mxmoe_g2": _mxmoe_stage2,
}
