"""Declared uses as small layers, and the production backend against AITER's stand-in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

import standin
from jobs import launch
from moeshapes import oracle
from moeshapes.arithmetic import Arithmetic, arithmetic_of, default_arithmetic
from moeshapes.backends.production.backend import ProductionArm, ProductionBackend, ProductionLayer
from moeshapes.problem import Problem, problem_of
from moeshapes.repository import load_declarations
from moeshapes.row import Key
from moeshapes.verify.job import Job
from moeshapes.verify.lookup import Lookup, cells_of
from moeshapes.verify.numerics import Judgement, judge, target_of
from moeshapes.verify.poison import Pattern, poisoned
from moeshapes.verify.site import PRODUCTION
from moeshapes.workload import Call, Layer, draw_calls, draw_layer

ROOT = Path(__file__).resolve().parent.parent
TOKEN = 8
MODEL_DIM = 512
ROUTED, SLOTS = 5, 3
SEED = 5
_ALL_DISTINCT = 1 << 26


@dataclass(frozen=True)
class Scaled:
    """A declared use with few experts and narrow dims; the structure, pads among it, is the use's own."""

    key: Key
    problem: Problem
    env: Mapping[str, str] = field(hash=False)

    @property
    def id(self) -> str:
        p = self.problem
        words = [p.recipe_name, self.key.gfx, p.activation.kind, "interleave" if p.interleave else "separated"]
        words += [f"limit{p.activation.limit:g}"] if p.activation.limit else []
        words += [f"pads{p.hidden_pad}+{p.intermediate_pad}"] if p.hidden_pad or p.intermediate_pad else []
        flags = (p.pads_as_arguments, "passed"), (p.bias, "bias"), (p.shared_experts, "shared")
        words += [word for holds, word in (*flags, (p.doweight_stage1, "doweight"), (p.ep > 1, f"ep{p.ep}")) if holds]
        return "-".join(words)


@cache
def declared_uses() -> tuple[Scaled, ...]:
    """One of each structure that this repository declares for AITER."""
    declarations, _ = load_declarations(ROOT)
    found = {}
    for row in declarations.rows:
        for key in row.keys:
            if key.gfx.startswith("gfx"):
                scaled = _scaled(key, problem_of(key, row.use), row.use.env)
                found[scaled.id] = scaled
    return tuple(found.values())


def _scaled(key: Key, problem: Problem, env: Mapping[str, str]) -> Scaled:
    inter_dim = 256 if problem.inter_dim % 256 == 0 else 384
    small = replace(
        problem,
        model_dim=MODEL_DIM,
        inter_dim=inter_dim,
        hidden_pad=_smaller(problem.hidden_pad, MODEL_DIM),
        intermediate_pad=_smaller(problem.intermediate_pad, inter_dim),
        expert=ROUTED + problem.shared_experts,
        topk=min(problem.topk, SLOTS) + problem.shared_experts,
    )
    return Scaled(_keyed(key, small), small, dict(env))


def _smaller(pad: int, dim: int) -> int:
    return pad if pad < dim // 2 else 64


def _keyed(key: Key, problem: Problem) -> Key:
    dims = replace(key.shape, model_dim=problem.model_dim, inter_dim=problem.inter_dim)
    return replace(key, shape=replace(dims, token=TOKEN, expert=problem.expert, topk=problem.topk))


@contextmanager
def aiter_for(use: Scaled, **settings: Any) -> Iterator[ProductionBackend]:
    """The backend with a stand-in on the device that the use is for, imported in the use's environment."""
    settings = {"env": use.env, "gfx": use.key.gfx, "cu_num": use.key.cu_num, **settings}
    with standin.installed(**settings), torch.inference_mode():
        yield ProductionBackend()


@cache
def layer_of(problem: Problem) -> Layer:
    return draw_layer(problem, SEED, torch.device("cpu"), _ALL_DISTINCT)


@cache
def calls_of(problem: Problem) -> tuple[Call, ...]:
    """One of production-like tokens, one of plain and probe tokens."""
    return draw_calls(layer_of(problem), TOKEN, SEED)[:2]


def lookup_of(use: Scaled) -> Lookup:
    return Lookup(cells_of(use.key))


_CK8 = "moe_ck2stages_gemm{stage}_256x32x64x128_1x4_{op}_v1_Nswizzle0_Quant{q}_MulRoutedWeight{weighs}{act}_F8_F8_B16"
_CK16 = "moe_ck2stages_gemm{stage}_256x128x128x64_1x4_{op}_v3_Nswizzle0_Quant0_MulRoutedWeight{weighs}{act}_B16_B16_B16"
_FLYDSL = {
    "a4w4": ("afp4_wfp4_bf16_t128x128x256", "afp4_wfp4_bf16_t64x256x128_reduce_bnt2_persist_sbm128", 128),
    "a8w4": ("afp8_wfp4_bf16_t32x64x256_w3_gui", "afp8_wfp4_bf16_t32x256x128_reduce_bnt2_persist", 32),
    "a16w4": ("abf16_wfp4_bf16_t32x128x128_bnt0_xcd1", "abf16_wfp4_bf16_t32x128x128_atomic_persist", 32),
    "a16wi4": ("abf16_wint4_bf16_t32x128x128", "abf16_wint4_bf16_t32x128x128_atomic", 32),
    "mxfp8": ("afp8_wfp8_bf16_t128x128x256_gui_fp8", "afp8_wfp8_bf16_t128x128x128_reduce_persist", 128),
}
_INT8 = "moe_ck2stages_gemm2_256x64x128x256_1x4_MulABScaleExpertWeight_v3_Nswizzle0_Quant1_MulRoutedWeight1_I8_I8_B16"


def row_of(problem: Problem) -> dict[str, Any] | None:
    """Launch fields of a row that kernels of the recipe can run; None where AITER publishes only labels."""
    recipe, kind, late = problem.recipe_name, problem.activation.kind, int(not problem.doweight_stage1)
    if recipe == "a16w4" and kind != "situv2":
        return None
    if recipe in _FLYDSL:
        first, second, block_m = _FLYDSL[recipe]
        return launch(f"flydsl_moe1_{first}", f"flydsl_moe2_{second}", block_m)
    if recipe == "fp8_block":
        return launch("_ZN5aiter43fmoe_bf16_blockscaleFp8_g1u1_vs_silu_64x256E", "", 64, run_1stage=1)
    if recipe == "int8":
        return launch("_ZN5aiter49fmoe_stage1_bf16_pertokenInt8_g1u1_64x128_2tg_pf3E", _INT8, 64)
    name, block_m = (_CK16, 128) if recipe == "bf16" else (_CK8, 32)
    ops = ("TypeCast", "TypeCastExpertWeight") if recipe == "bf16" else ("MulABScale", "MulABScaleExpertWeight")
    q = 1 if recipe == "fp8_tensor" else 2
    first = name.format(stage=1, op=ops[0], q=q, weighs=1 - late, act=f"_{kind}")
    return launch(first, name.format(stage=2, op=ops[1], q=q, weighs=late, act=""), block_m)


def job_of(use: Scaled, row: Mapping[str, Any] | None) -> Job:
    return Job(
        id=use.id,
        name=use.id,
        use_id=use.id,
        token=TOKEN,
        counts=(TOKEN,),
        problem=use.problem,
        launch=None if row is None else dict(row),
        backend=PRODUCTION,
        device="cpu",
        seed=SEED,
        max_elements=_ALL_DISTINCT,
        thorough=False,
        env=use.env,
        lookup=lookup_of(use),
    )


def arithmetic(problem: Problem, launch: Mapping[str, Any] | None) -> Arithmetic:
    recipe = problem.recipe
    return default_arithmetic(recipe, TOKEN) if launch is None else arithmetic_of(launch, recipe)


def judgements(arm: ProductionArm, prepared: ProductionLayer, problem: Problem | None = None) -> list[Judgement]:
    """Each call's output against the references of `problem`, by default what the arm's layer really is."""
    true = problem or prepared.problem
    modelled = arithmetic(true, arm.launch)
    layer, calls = layer_of(true), calls_of(true)
    exact, stated = oracle.references(layer, [oracle.Pass(calls, None), oracle.Pass(calls, modelled)])
    found = []
    for call, o, r in zip(calls, exact, stated, strict=True):
        with arm.activate(), poisoned(Pattern.FIRST):
            output = arm.run(call)
        found.append(judge(output, target_of(o, r, true.topk, modelled.modelled)))
    return found
