"""Hazards: where what runs is not what was named, or not what the call asked for (contract 3.4, 3.5, 4.8)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from moeshapes.kernel_name import LABEL_FAMILIES, KernelName, parse
from moeshapes.recipe import Format, QType
from moeshapes.rule import Severity
from moeshapes.runtime.ck import ck_obstacle
from moeshapes.runtime.plan import Plan, Situation, Stage


@dataclass(frozen=True)
class Remark:
    """Something to know about a call. An error is a crash or a wrong result to expect."""

    severity: Severity
    text: str


Hazard = Callable[[Situation, Plan], Iterator[Remark]]
_HAZARDS: list[Hazard] = []

_MXMOE_SHAPES = frozenset(
    {
        *((385, 7168, 9), (257, 7168, 9), (384, 7168, 8), (32, 7168, 8)),
        *((48, 7168, 6), (384, 7168, 6), (385, 7168, 7), (257, 6144, 9)),
        *((256, 4096, 6), (512, 4096, 10), (256, 3072, 8)),
    }
)
"""(expert, model_dim, topk) that mxmoe's own sort is compiled for. Source: SHAPES of moe_aux, AITER e4048607a5."""

_ATOMIC_LIMIT = 0xFFFFFFFF
"""Bytes of output that 32-bit offsets of atomics reach."""
_CK_TILE_STEP = 256
_FIXED_SWIGLU_LIMIT = 7
"""The limit of swiglu kernels that take none."""


def remarks(situation: Situation, plan: Plan) -> list[Remark]:
    """Everything that is amiss with what a call launches, errors first."""
    found = [remark for hazard in _HAZARDS for remark in hazard(situation, plan)]
    return sorted(dict.fromkeys(found), key=lambda remark: list(Severity).index(remark.severity))


def _hazard(function: Hazard) -> Hazard:
    _HAZARDS.append(function)
    return function


def _error(text: str) -> Remark:
    return Remark(Severity.ERROR, text)


def _warning(text: str) -> Remark:
    return Remark(Severity.WARNING, text)


def _kernels(plan: Plan, *families: str) -> Iterator[KernelName]:
    """The launched kernels with names of these families."""
    for stage in plan.stages:
        if stage.parsed and stage.parsed.family in families:
            yield stage.parsed


def _is_16_bit(kernel: KernelName) -> bool:
    """Whether FlyDSL's kernel for 16-bit activations runs, which has rules of its own."""
    return kernel.a is Format.BF16


@_hazard
def not_as_named(s: Situation, plan: Plan) -> Iterator[Remark]:
    """The row's names are not what is launched."""
    for number, name in enumerate(s.named):
        stage = plan.stages[min(number, len(plan.stages) - 1)]
        if not name or name == stage.name or _is_label_of(name, stage) or _is_foreign(parse(name), s):
            continue
        kernel = parse(name)
        what = "a label that is no kernel" if kernel and kernel.family in LABEL_FAMILIES else "which does not run"
        yield _warning(f"the row names `{name}`, {what}: its times describe something else")


def _is_label_of(name: str, stage: Stage) -> bool:
    """Whether a name that is no kernel says truly which path runs."""
    kernel = parse(name)
    return stage.family == "CK-Tile" and kernel is not None and kernel.family in LABEL_FAMILIES


def _is_foreign(kernel: KernelName | None, s: Situation) -> bool:
    """Whether CK has the kernel for another activation than the call's alone."""
    return bool(kernel and kernel.family == "ck_gemm" and kernel.activation not in (None, s.call.activation))


@_hazard
def unloadable_names(s: Situation, plan: Plan) -> Iterator[Remark]:
    """Assembly is asked for a name that it does not have."""
    name = plan.stages[0].name
    if plan.step == 9 and name and not name.startswith("_ZN5aiter"):
        missing = " because FlyDSL cannot be imported" if name.startswith("flydsl_") and not s.call.flydsl else ""
        yield _error(f"a crash is expected: assembly has no kernel `{name}`, which lands there{missing}")


@_hazard
def foreign_activation(s: Situation, plan: Plan) -> Iterator[Remark]:
    """A kernel compiled for another activation than the call's."""
    for kernel in _kernels(plan, "asm_1stage"):
        if kernel.activation != s.call.activation:
            yield _error(f"a crash is expected: there is no {s.call.activation} kernel `{kernel.render()}`")
    first = parse(s.kernel1) if s.row else None
    if first and _is_foreign(first, s):
        yield _warning(
            f"`{s.kernel1}` is for {first.activation}: CK finds none for {s.call.activation} and chooses by itself"
        )


@_hazard
def silently_silu(s: Situation, plan: Plan) -> Iterator[Remark]:
    """FlyDSL and mxmoe compute SiLU where they have not the activation."""
    activation = s.call.activation
    for kernel in _kernels(plan, "mxmoe_g1"):
        if activation != "silu":
            yield _error(f"wrong results are expected: `{kernel.render()}` computes silu whatever the activation")
    for kernel in _kernels(plan, "flydsl_moe1"):
        if activation == "gelu":
            yield _error(f"wrong results are expected: `{kernel.render()}` computes silu for gelu")
        if _is_16_bit(kernel) and activation == "swiglu":
            yield _error(f"a crash is expected: `{kernel.render()}` has no swiglu")


@_hazard
def mxmoe_limits(s: Situation, plan: Plan) -> Iterator[Remark]:
    """What mxmoe's own sort does not do."""
    if plan.step != 1:
        return
    call = s.call
    if call.expert_mask:
        yield _error("a crash is expected: mxmoe kernels take no expert mask")
    if (call.expert, call.model_dim, call.topk) not in _MXMOE_SHAPES:
        yield _error(
            f"a crash is expected: mxmoe's sort is not compiled for {call.expert} experts, top-k {call.topk},"
            f" model_dim {call.model_dim}"
        )


@_hazard
def dropped_bias(s: Situation, plan: Plan) -> Iterator[Remark]:
    if not s.call.bias:
        return
    for number, stage in enumerate(plan.stages, 1):
        if not _takes_bias(s, plan, stage):
            yield _error(f"wrong results are expected: {stage} ignores the bias of stage {number}")


def _takes_bias(s: Situation, plan: Plan, stage: Stage) -> bool:
    """Tuned FlyDSL kernels take one for fp4 weights alone, the fallback for fp8 too; CK-Tile in step 7 for swiglu."""
    kernel = stage.parsed
    if stage.family == "CK-Tile":
        return plan.step != 7 or s.call.activation == "swiglu"
    if kernel and kernel.family in ("flydsl_moe1", "flydsl_moe2"):
        return s.call.weight is Format.FP4 or plan.step == 6
    return kernel is not None and kernel.family == "opus_moe1"


@_hazard
def ignored_limit(s: Situation, plan: Plan) -> Iterator[Remark]:
    fixed = s.call.activation == "swiglu" and s.call.swiglu_limit == _FIXED_SWIGLU_LIMIT
    if s.call.swiglu_limit is None or fixed:
        return
    first = plan.stages[0]
    heeds = first.parsed is not None and first.parsed.family in ("flydsl_moe1", "opus_moe1")
    port = first.parsed is not None and _is_16_bit(first.parsed) and s.call.activation == "silu"
    if not heeds or port:
        yield _warning(f"swiglu_limit {s.call.swiglu_limit:g} is ignored by {first}")


@_hazard
def situv2_of_bf16(s: Situation, plan: Plan) -> Iterator[Remark]:
    call = s.call
    if not (call.activation == "situv2" and s.mx and s.a is Format.BF16 and call.weight is Format.FP4):
        return
    bad = {
        f"on {call.gfx}": call.gfx not in ("gfx942", "gfx950"),
        "without FlyDSL": not call.flydsl,
        "with a bias": call.bias,
        "with an expert mask": call.expert_mask,
        "with weights that are not marked is_shuffled": not call.shuffled,
        "with the routing weight in stage 1": call.doweight_stage1,
        "without gate and up in w1": not call.use_g1u1,
    }
    listed = ", ".join(words for words, holds in bad.items() if holds)
    if listed:
        yield _error(f"a crash is expected: AITER refuses situv2 with bf16 activations {listed}")


@_hazard
def other_gates(s: Situation, plan: Plan) -> Iterator[Remark]:
    """FlyDSL's layout of gate and up follows from its activation format, whatever the call says."""
    for kernel in _kernels(plan, "flydsl_moe1"):
        reads = "interleave" if kernel.gui else "separated"
        if reads != s.call.gate_mode and s.call.use_g1u1:
            yield _error(
                f"wrong results are expected: `{kernel.render()}` reads gate and up as `{reads}`, the call has"
                f" `{s.call.gate_mode}`"
            )


@_hazard
def narrowed_tiles(s: Situation, plan: Plan) -> Iterator[Remark]:
    inter_dim = s.call.inter_dim
    for kernel in _kernels(plan, "flydsl_moe1"):
        if kernel.tile_n and inter_dim % kernel.tile_n and s.call.weight is Format.FP4 and s.a is not Format.FP4:
            yield from _narrowed(kernel, "columns", kernel.tile_n, inter_dim)
    for kernel in _kernels(plan, "flydsl_moe2"):
        if kernel.tile_k and inter_dim % kernel.tile_k and not _is_16_bit(kernel):
            yield from _narrowed(kernel, "K step", kernel.tile_k, inter_dim)


def _narrowed(kernel: KernelName, what: str, tile: int, inter_dim: int) -> Iterator[Remark]:
    text = f"the {what} of {tile} of `{kernel.render()}` do not divide inter_dim {inter_dim}"
    if _is_16_bit(kernel):
        yield _error(f"a crash is expected: {text}")
    elif inter_dim % 128:
        yield _error(f"wrong results are expected: {text}, nor does 128")
    else:
        yield _warning(f"{text}: 128 runs instead")


@_hazard
def forced_reduce(s: Situation, plan: Plan) -> Iterator[Remark]:
    for kernel in _kernels(plan, "flydsl_moe2"):
        if kernel.mode != "atomic" or _is_16_bit(kernel):
            continue
        output = s.call.tokens * s.call.model_dim * 2
        if s.call.env.get("AITER_FLYDSL_FORCE_REDUCE") == "1":
            yield _warning(f"AITER_FLYDSL_FORCE_REDUCE is 1: `{kernel.render()}` reduces instead of adding atomically")
        elif output > _ATOMIC_LIMIT:
            yield _warning(f"the output has {output} bytes: `{kernel.render()}` reduces instead of adding atomically")


@_hazard
def unshuffled(s: Situation, plan: Plan) -> Iterator[Remark]:
    if s.row and not s.row.run_1stage and not s.call.shuffled:
        yield _warning("no weight is marked is_shuffled: tuned kernels read shuffled weights, results may be wrong")


@_hazard
def opus_routing_weight(s: Situation, plan: Plan) -> Iterator[Remark]:
    for kernel in _kernels(plan, "opus_moe1"):
        if s.call.doweight_stage1:
            yield _error(f"a crash is expected: `{kernel.render()}` does not apply the routing weight")


@_hazard
def unsafe_ck_tile(s: Situation, plan: Plan) -> Iterator[Remark]:
    """Stage 2 reads block scales at wrong positions."""
    inter_dim = s.call.inter_dim
    if plan.stages[-1].family == "CK-Tile" and s.mx and inter_dim % _CK_TILE_STEP:
        yield _error(
            f"wrong results are expected: CK-Tile's stage 2 misreads scales where inter_dim is no multiple of"
            f" {_CK_TILE_STEP} ({inter_dim} % {_CK_TILE_STEP} = {inter_dim % _CK_TILE_STEP})"
        )


@_hazard
def no_ck_kernel(s: Situation, plan: Plan) -> Iterator[Remark]:
    own_choice = [n for n, stage in enumerate(plan.stages, 1) if stage.family == "CK" and not stage.name]
    obstacle = ck_obstacle(s.call, plan.block_m, own_choice) if own_choice else ""
    if obstacle:
        yield _error(f"a crash is expected: {obstacle}")


@_hazard
def flydsl_or_nothing(s: Situation, plan: Plan) -> Iterator[Remark]:
    """What would serve the call, were FlyDSL missing or the mark lost on the way, cannot."""
    obstacle = ck_obstacle(s.call, s.heuristic.block_m) if plan.step == 6 else ""
    if obstacle:
        yield _warning(
            f"where is_shuffled is lost from the weights, or FlyDSL is missing, a crash is expected: {obstacle}"
        )


@_hazard
def other_table(s: Situation, plan: Plan) -> Iterator[Remark]:
    if s.call.gfx == "gfx1250" and s.call.gate_mode == "interleave" and s.call.flydsl:
        yield _warning(
            "on gfx1250 interleaved gates run grouped kernels, whose table (tuned_grouped_fmoe) is not read here"
        )
    if s.call.env.get("AITER_ONLINE_TUNE") == "1" and s.row is None:
        yield _warning("AITER_ONLINE_TUNE is 1: AITER tunes this key when it meets it, and goes on with what it finds")


@_hazard
def quantised_per_block(s: Situation, plan: Plan) -> Iterator[Remark]:
    """One-stage kernels of 128 blocks take whole blocks alone."""
    if plan.step == 2 and s.call.q_type is QType.PER_1X128 and s.call.inter_dim % 128:
        yield _error(f"a crash is expected: inter_dim {s.call.inter_dim} is no multiple of the scale's block of 128")
