"""Plans: which kernels a call launches, given its row or none, in the order in which AITER decides (contract 3.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from moeshapes.dispatch import MAX_TOKENS
from moeshapes.kernel_name import KernelName, parse
from moeshapes.recipe import Format, QType
from moeshapes.row import TunedRow
from moeshapes.runtime.call import RuntimeCall
from moeshapes.runtime.heuristic import Heuristic, choose_heuristic
from moeshapes.runtime.version import FLYDSL_BY_DEFAULT


@dataclass(frozen=True)
class Situation:
    """A call and the row that serves it, None where AITER chooses by itself."""

    call: RuntimeCall
    row: TunedRow | None

    @property
    def kernel1(self) -> str:
        return self.row.kernel1 if self.row else ""

    @property
    def kernel2(self) -> str:
        return self.row.kernel2 if self.row else ""

    @property
    def named(self) -> tuple[str, str]:
        return self.kernel1, self.kernel2

    @property
    def a(self) -> Format:
        return self.call.format.format

    @property
    def mx(self) -> bool:
        return self.call.q_type is QType.PER_1X32

    @cached_property
    def heuristic(self) -> Heuristic:
        return choose_heuristic(self.call)

    @property
    def one_stage(self) -> bool:
        return self.row.run_1stage if self.row else self.heuristic.one_stage

    @property
    def block_m(self) -> int:
        return self.row.block_m if self.row else self.heuristic.block_m

    @property
    def ksplit(self) -> int:
        if self.row is None:
            return self.heuristic.ksplit
        return 0 if self.call.number("AITER_KSPLIT", 0) == -1 else self.row.ksplit


@dataclass(frozen=True)
class Stage:
    """A kernel that is launched. `name` is empty where compiled code chooses it; `family` then says whose."""

    family: str
    name: str = ""

    def __str__(self) -> str:
        return self.name or f"{self.family} (chosen in compiled code)"

    @property
    def parsed(self) -> KernelName | None:
        return parse(self.name) if self.name else None


@dataclass(frozen=True)
class Plan:
    """What runs: the step of AITER's dispatch order, its path in words, the kernels, and how tokens are sorted."""

    step: int
    path: str
    stages: tuple[Stage, ...]
    block_m: int
    ksplit: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)


def plan(situation: Situation) -> Plan:
    """What a call launches."""
    return next(step.launch(situation) for step in _STEPS if step.holds(situation))


@dataclass(frozen=True)
class _Step:
    holds: Callable[[Situation], bool]
    launch: Callable[[Situation], Plan]


def _starts(prefix: str, *names: str) -> bool:
    return any(name.startswith(prefix) for name in names)


def _mxmoe(s: Situation) -> Plan:
    first = parse(s.kernel1)
    block_m = first.tile_m if first and first.family == "mxmoe_g1" and first.tile_m else s.block_m
    return Plan(1, "mxmoe pair", (Stage("mxmoe", s.kernel1), Stage("mxmoe", s.kernel2)), block_m, s.ksplit)


def _asm_1stage(s: Situation) -> Plan:
    return Plan(2, "one assembly kernel for both stages", (Stage("asm 1-stage", s.kernel1),), s.block_m, s.ksplit)


def _by_name(s: Situation) -> bool:
    return _starts("opus_moe1_", s.kernel1) or (_starts("flydsl_", *s.named) and s.call.flydsl)


def _each_by_name(s: Situation) -> Plan:
    heeded = s.kernel1.startswith(("opus_moe1_", "flydsl_"))
    first = Stage("named", s.kernel1) if heeded else _ck(s, 1)
    second = Stage("named", s.kernel2) if _starts("flydsl_", s.kernel2) else _second_by_name(s)
    return Plan(3, "each stage by its name", (first, second), s.block_m, s.ksplit)


def _second_by_name(s: Situation) -> Stage:
    """Stage 2 where its name is heeded."""
    if _starts("flydsl_", s.kernel2) and s.call.flydsl:
        return Stage("named", s.kernel2)
    if _starts("opus_", s.kernel2):
        return Stage("named", s.kernel2)
    return Stage("CK-Tile") if _starts("cktile_", s.kernel2) else _ck(s, 2)


def _ck(s: Situation, stage: int) -> Stage:
    """CK's kernel of the name. Its modules hold the call's activation alone; without the name, CK chooses by itself."""
    name = s.named[stage - 1]
    parsed = parse(name) if name else None
    foreign = parsed is not None and parsed.activation not in (None, s.call.activation)
    return Stage("CK", "" if foreign or (parsed and parsed.family != "ck_gemm") else name)


def _interleaved_swiglu(s: Situation) -> bool:
    swiglu = s.call.activation == "swiglu" and s.call.gate_mode == "interleave"
    return swiglu and s.mx and s.call.weight is not Format.FP8


def _block_of(token: int) -> int:
    return 16 if token < 2048 else 32 if token < 16384 else 64


def _ck_tile_interleaved(s: Situation) -> Plan:
    block_m = 32 if s.a is Format.FP8 else _block_of(s.call.bucket)
    return Plan(4, "CK-Tile pair with the fused gate epilogue", (Stage("CK-Tile"), Stage("CK-Tile")), block_m, s.ksplit)


def _a16wi4(s: Situation) -> bool:
    return s.mx and s.call.weight is Format.INT4 and s.call.flydsl


def _a16wi4_fallback(s: Situation) -> Plan:
    tile_m = _block_of(s.call.bucket)
    names = (
        f"flydsl_moe1_abf16_wint4_bf16_t{tile_m}x128x128",
        f"flydsl_moe2_abf16_wint4_bf16_t{tile_m}x128x128_atomic",
    )
    return Plan(5, "FlyDSL's fallback for int4 weights", tuple(Stage("FlyDSL", name) for name in names), tile_m, 0)


def _flydsl_mx(s: Situation) -> bool:
    call = s.call
    if not (s.mx and call.shuffled and call.use_g1u1 and not call.doweight_stage1 and call.flydsl):
        return False
    if call.activation == "situv2" and s.a is Format.BF16 and call.weight is Format.FP4:
        return True
    if not call.version.has(FLYDSL_BY_DEFAULT):
        return call.activation == "swiglu" and s.a is call.weight is Format.FP4
    served = call.activation in ("swiglu", "situv2") or call.env.get("AITER_FLYDSL_FORCE", "1") == "1"
    return served and {s.a, call.weight} <= {Format.FP4, Format.FP8}


_FLYDSL_TIERS = (
    (2048, (32, "_w2", "_bnt2")),
    (4096, (64, "_w3_bnt0", "")),
    (16384, (128, "_w2_bnt0", "")),
    (MAX_TOKENS + 1, (64, "_w4_bnt0", "")),
)
"""By bucket: the tile's M, and the suffixes of the two names."""


def _flydsl_mx_fallback(s: Situation) -> Plan:
    tile_m, suffix1, suffix2 = next(tier for limit, tier in _FLYDSL_TIERS if s.call.bucket < limit)
    formats = f"a{s.a.value}_w{s.call.weight.value}_{'bf16' if s.call.dtype == 'torch.bfloat16' else 'f16'}"
    tile_k = 256 if s.call.inter_dim % 256 == 0 else 128
    names = (
        f"flydsl_moe1_{formats}_t{tile_m}x128x256{suffix1}{'_gui' if s.a is Format.FP8 else ''}",
        f"flydsl_moe2_{formats}_t{tile_m}x128x{tile_k}_atomic{suffix2}",
    )
    return Plan(6, "FlyDSL's fallback", tuple(Stage("FlyDSL", name) for name in names), tile_m, -1)


def _swiglu_of_bf16(s: Situation) -> bool:
    return s.mx and s.call.activation == "swiglu" and s.a is Format.BF16 and s.call.weight is Format.FP4


def _ck_tile_fp4(s: Situation) -> bool:
    fp4_swiglu = s.call.activation == "swiglu" and s.a is Format.FP4
    shuffled_fp4 = s.mx and s.call.weight is Format.FP4 and s.call.shuffled and not fp4_swiglu
    if shuffled_fp4 and (s.ksplit > 1 or _swiglu_of_bf16(s)):
        return True
    return s.mx and s.call.activation == "swiglu" and s.call.weight is Format.FP4 and not s.kernel1


def _ck_tile_pair(s: Situation) -> Plan:
    least = 2 if s.call.activation == "swiglu" else 1
    stages = (Stage("CK-Tile"), Stage("CK-Tile"))
    return Plan(7, "CK-Tile pair with split K", stages, _block_of(s.call.bucket), max(s.ksplit, least))


def _ck_pair(s: Situation) -> bool:
    if s.kernel1:
        return "ck2stages" in s.kernel1
    weighted_blocks = s.call.q_type is QType.PER_1X128 and s.call.doweight_stage1
    return weighted_blocks or s.call.weight in (Format.BF16, Format.FP4, Format.FP8)


def _ck_pair_plan(s: Situation) -> Plan:
    return Plan(8, "CK pair", (_ck(s, 1), _second_by_name(s)), s.block_m, s.ksplit)


def _asm_stage1(s: Situation) -> Plan:
    block_m = s.block_m if s.block_m in (16, 32, 64, 128) else next((b for b in (16, 32, 64) if s.block_m < b), 128)
    stages = (Stage("asm stage 1", s.kernel1), _second_after_asm(s))
    return Plan(9, "assembly stage 1 with a second kernel", stages, block_m, s.ksplit)


def _second_after_asm(s: Situation) -> Stage:
    """Unlike CK's, this path does not heed FlyDSL names in stage 2."""
    return _ck(s, 2) if _starts("flydsl_", s.kernel2) else _second_by_name(s)


_STEPS = (
    _Step(lambda s: _starts("flydsl_mxmoe_g", *s.named), _mxmoe),
    _Step(lambda s: s.one_stage, _asm_1stage),
    _Step(_by_name, _each_by_name),
    _Step(_interleaved_swiglu, _ck_tile_interleaved),
    _Step(_a16wi4, _a16wi4_fallback),
    _Step(_flydsl_mx, _flydsl_mx_fallback),
    _Step(_ck_tile_fp4, _ck_tile_pair),
    _Step(_ck_pair, _ck_pair_plan),
    _Step(lambda s: True, _asm_stage1),
)
