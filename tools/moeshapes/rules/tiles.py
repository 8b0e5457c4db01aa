"""Rules about tiles that do not divide the row's dims (contract 4.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from moeshapes.findings import Finding
from moeshapes.kernel_name import LABEL_FAMILIES, KernelName
from moeshapes.recipe import Format, QType
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

DOES_NOT_DIVIDE = Rule(
    "MOE310", "tile-does-not-divide", Severity.ERROR,
    what="A kernel's tile does not divide a dim of the row.",
    why="The kernel is refused, or its loops leave the remainder out of the result.",
    fix="Name a kernel whose tiles divide model_dim and inter_dim.",
)  # fmt: skip
NOT_RUN_AS_NAMED = Rule(
    "MOE311", "not-run-as-named", Severity.WARNING,
    what="AITER replaces the kernel that a row names by another one.",
    why="The times are the other kernel's, and whoever compares names compares what never ran.",
    fix="Name the kernel that runs.",
)  # fmt: skip
UNSAFE_SCALES = Rule(
    "MOE320", "cktile-scales", Severity.ERROR,
    what="A CK-Tile stage 2 has MX scales and an inter_dim that is no multiple of 256.",
    why="It reads the block scales at wrong positions: the result is finite, fast and wrong.",
    fix="Name a FlyDSL stage 2 with tile K 128, or pad inter_dim to a multiple of 256.",
)  # fmt: skip

_SMALLEST_N = 128
_SMALLEST_K = {Format.FP4: 128, Format.FP8: 128, Format.BF16: 64}
"""What the runtime falls back to where the named tile of stage 2 does not divide, by the format of activations."""


@dataclass(frozen=True)
class _Need:
    """A dim that has to be a multiple. `instead` is the tile that AITER takes where that does not hold, 0 for none."""

    dim: str
    size: int
    multiple: int
    tile: str
    instead: int = 0

    @property
    def rule(self) -> Rule | None:
        if self.size % self.multiple == 0:
            return None
        replaced = 0 < self.instead < self.multiple and self.size % self.instead == 0
        return NOT_RUN_AS_NAMED if replaced else DOES_NOT_DIVIDE

    def __str__(self) -> str:
        return f"{self.tile} needs {self.dim} in multiples of {self.multiple}, and it is {self.size}"


@dataclass(frozen=True)
class _Dims:
    """model_dim, and inter_dim with the pads that serving passes already taken off."""

    model: int
    inter: int


def _asm(kernel: KernelName, dims: _Dims) -> Iterator[_Need]:
    yield _Need("inter_dim", dims.inter, kernel.tile_n or 1, "tile N")
    if kernel.stage == 0 and QType.PER_1X128 in kernel.q_types:
        yield _Need("inter_dim", dims.inter, 128, "a block of scales")


def _ck(kernel: KernelName, dims: _Dims) -> Iterator[_Need]:
    n, k = ("inter_dim", "model_dim") if kernel.stage == 1 else ("model_dim", "inter_dim")
    sizes = {"model_dim": dims.model, "inter_dim": dims.inter}
    yield _Need(n, sizes[n], kernel.tile_n or 1, "tile N")
    yield _Need(k, sizes[k], kernel.tile_k or 1, "tile K")


def _flydsl_stage1(kernel: KernelName, dims: _Dims) -> Iterator[_Need]:
    tile_n, slices = kernel.tile_n or 1, (kernel.kb or 1) * (kernel.kw or 1)
    if kernel.w is Format.FP8:
        yield _Need("gate and up of inter_dim", 2 * dims.inter, tile_n, "tile N")
    else:
        instead = _SMALLEST_N if kernel.w is Format.FP4 and kernel.a is not Format.FP4 else 0
        yield _Need("inter_dim", dims.inter, tile_n, "tile N", instead)
    yield _Need("model_dim", dims.model, (kernel.tile_k or 1) * slices, "tile K times K slices")


def _flydsl_stage2(kernel: KernelName, dims: _Dims) -> Iterator[_Need]:
    on_bf16 = kernel.a is Format.BF16
    smallest_k = _SMALLEST_K[kernel.a or Format.BF16] if kernel.family == "flydsl_moe2" else 0
    yield _Need("model_dim", dims.model, kernel.tile_n or 1, "tile N", _SMALLEST_N if on_bf16 else 0)
    yield _Need("inter_dim", dims.inter, kernel.tile_k or 1, "tile K", smallest_k)
    yield _Need("the sort block", kernel.sort_block_m or 1, kernel.tile_m or 1, "tile M")


def _mxmoe_stage1(kernel: KernelName, dims: _Dims) -> Iterator[_Need]:
    yield _Need("model_dim", dims.model, 256, "mxmoe")
    yield _Need("gate and up of inter_dim", 2 * dims.inter, 256, "mxmoe")


def _mxmoe_stage2(kernel: KernelName, dims: _Dims) -> Iterator[_Need]:
    yield _Need("model_dim", dims.model, 256, "mxmoe")
    yield _Need("inter_dim", dims.inter, 256, "mxmoe")


def _opus_stage1(kernel: KernelName, dims: _Dims) -> Iterator[_Need]:
    yield _Need("model_dim", dims.model, 256 * (kernel.kw or 1), "two blocks of 128 times K waves")
    half_tile = max((kernel.tile_n or 2) // 2, 1) if kernel.kw is None else 32
    yield _Need(
        "inter_dim less its passed pad", dims.inter, half_tile, "half a tile N" if kernel.kw is None else "a pair"
    )


def _opus_stage2(kernel: KernelName, dims: _Dims) -> Iterator[_Need]:
    yield _Need("inter_dim less its passed pad", dims.inter, 128, "a block of scales")
    yield _Need("model_dim", dims.model, kernel.tile_n or 1, "tile N")


_NEEDS: dict[str, Callable[[KernelName, _Dims], Iterator[_Need]]] = {
    "asm_stage1": _asm,
    "asm_1stage": _asm,
    "ck_gemm": _ck,
    "flydsl_moe1": _flydsl_stage1,
    "flydsl_moe2": _flydsl_stage2,
    "moe2_layout": _flydsl_stage2,
    "mxmoe_g1": _mxmoe_stage1,
    "mxmoe_g2": _mxmoe_stage2,
    "opus_moe1": _opus_stage1,
    "opus_moe2": _opus_stage2,
}
_USES_PAD = frozenset({"opus_moe1", "opus_moe2"})


@check
def tiles(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        needs = _NEEDS.get(kernel.family)
        if needs is None:
            continue
        failed = {need: need.rule for dims in _dims(subject, kernel) for need in needs(kernel, dims) if need.rule}
        for need, rule in failed.items():
            name = f"kernelName{column} `{kernel.render()}`: {need}"
            if rule is NOT_RUN_AS_NAMED:
                yield subject.finding(rule, f"{name}; AITER takes {need.instead} instead")
            elif rule:
                yield subject.finding(rule, name)


def _dims(subject: Subject, kernel: KernelName) -> list[_Dims]:
    """The row's dims as each of its uses lets the kernel see them."""
    shape = subject.row.key.shape
    passed = {0} | {use.intermediate_pad for use in subject.uses if use.pads == "arguments"}
    pads = sorted(passed) if kernel.family in _USES_PAD else [0]
    return [_Dims(shape.model_dim, shape.inter_dim - pad) for pad in pads]


_F4OUT_DIMS = (7168, 512)
_F4OUT_EXPERTS = (257, 385)


@check
def f4out(subject: Subject) -> Iterator[Finding]:
    shape = subject.row.key.shape
    served = (shape.model_dim, shape.inter_dim) == _F4OUT_DIMS and shape.expert in _F4OUT_EXPERTS
    for column, kernel in subject.parsed:
        if kernel.f4out and not served:
            dims = f"{shape.model_dim}/{shape.inter_dim}/{shape.expert}"
            message = f"kernelName{column} `{kernel.render()}`: `_f4out` exists for 7168/512 with 257 or 385 experts"
            yield subject.finding(
                NOT_RUN_AS_NAMED, f"{message}, not for {dims}; AITER runs it with bf16 slots",
                f"Name `{kernel.render().replace('_f4out', '')}`.",
            )  # fmt: skip


@check
def cktile_scales(subject: Subject) -> Iterator[Finding]:
    shape = subject.row.key.shape
    for column, kernel in subject.parsed:
        if kernel.family in LABEL_FAMILIES and column == 2 and shape.inter_dim % 256:
            message = f"kernelName2 `{kernel.render()}` with {shape.q_type}: inter_dim {shape.inter_dim} % 256 ="
            yield subject.finding(UNSAFE_SCALES, f"{message} {shape.inter_dim % 256}")
