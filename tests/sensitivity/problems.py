"""Problems and launches that the suite tries: every recipe with everything a layer can have, and real deployments'
dims.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moeshapes.arithmetic import Departure, arithmetic_of
from moeshapes.problem import Activation, Problem
from moeshapes.recipe import RECIPES
from moeshapes.verify.job import Job
from moeshapes.verify.plan import counts_of

SWIGLU = Activation("swiglu", limit=7.0, alpha=1.702)
ACTIVATIONS = (
    Activation("silu"),
    Activation("silu", limit=10.0),
    Activation("gelu"),
    SWIGLU,
    Activation("situv2", beta=4.0, linear_beta=25.0),
)


def loaded(recipe: str, model_dim: int, inter_dim: int) -> Problem:
    """A layer with pads, a limit, biases, a fused shared expert and more experts than eight bits count."""
    return Problem(
        model_dim=model_dim,
        inter_dim=inter_dim,
        expert=385,
        topk=7,
        recipe_name=recipe,
        fnuz=False,
        activation=SWIGLU,
        hidden_pad=192,
        intermediate_pad=64,
        interleave=recipe in ("a8w4", "mxfp8"),
        bias=True,
        shared_experts=1,
    )


def plain(recipe: str, seed: int) -> Problem:
    """A layer without pads or biases; its dims, experts and activation vary with the seed."""
    return Problem(
        model_dim=(512, 1024, 1536, 2048)[seed % 4],
        inter_dim=(128, 256, 384)[seed % 3],
        expert=(8, 33, 129, 257)[seed // 2 % 4],
        topk=(1, 2, 5, 8)[seed // 3 % 4],
        recipe_name=recipe,
        fnuz=recipe.startswith("fp8") and seed % 2 == 1,
        activation=ACTIVATIONS[seed % len(ACTIVATIONS)],
        interleave=seed % 2 == 0,
        doweight_stage1=seed % 3 == 0,
    )


def _pair(first: str, second: str, block_m: int = 32) -> dict[str, Any]:
    return {
        "block_m": block_m,
        "ksplit": 0,
        "kernelName1": first,
        "kernelName2": second,
        "run_1stage": 0,
        "xbf16": 0,
        "flat": 0,
    }


LAUNCHES: dict[str, list[dict[str, Any] | None]] = {
    "a4w4": [
        None,
        _pair("flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2", "flydsl_moe2_afp4_wfp4_bf16_t32x128x256_reduce"),
        _pair(
            "flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2_fp4", "flydsl_moe2_layout_afp4_wfp4_bf16_t32x128x256_atomic_nt"
        ),
    ],
    "a8w4": [
        None,
        _pair("flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w3_gui", "flydsl_moe2_afp8_wfp4_bf16_t32x128x256_atomic"),
        _pair("flydsl_moe1_afp8_wfp4_bf16_t64x128x256_w3_gui_fp8", "flydsl_moe2_afp8_wfp4_bf16_t64x128x256_reduce", 64),
        _pair(
            "flydsl_moe1_afp8_wfp4_bf16_t64x128x256_w3_gui_fp8", "opus_moe2_afp8_wfp4_fp8_t64x256x256_sbm64_rbn3584", 64
        ),
    ],
    "mxfp8": [
        None,
        _pair("flydsl_moe1_afp8_wfp8_bf16_t32x128x256_w3_gui_fp8", "flydsl_moe2_afp8_wfp8_bf16_t32x128x256_reduce"),
    ],
}
"""Launches a recipe whose kernels keep the limit and the biases of a layer that has none of the latter."""


def launches(recipe: str) -> list[dict[str, Any] | None]:
    return LAUNCHES.get(recipe, [None])


def job(
    problem: Problem, launch: dict[str, Any] | None, seed: int, token: int = 8, max_elements: int = 6_000_000
) -> Job:
    return Job(
        id="",
        name="",
        use_id="",
        token=token,
        counts=counts_of(token),
        problem=problem,
        launch=launch,
        backend="emulate",
        device="cpu",
        seed=seed,
        max_elements=max_elements,
    )


def _departs(problem: Problem, launch: dict[str, Any]) -> bool:
    """Whether the kernels compute something else than the layer asks for, which is theirs to fail for."""
    drops_bias = Departure.BIAS_DROPPED in arithmetic_of(launch, problem.recipe).departures
    return problem.activation.kind == "gelu" or (problem.bias and drops_bias)


def honest_jobs(seeds: int) -> Iterator[Job]:
    """Every recipe and launch under `seeds` seeds: alternately plain layers and loaded ones, buckets 1 to 32."""
    for recipe in RECIPES:
        for seed in range(seeds):
            for launch in launches(recipe):
                problem = loaded(recipe, 1024, 384) if seed % 4 == 3 else plain(recipe, seed)
                if launch is not None and _departs(problem, launch):
                    continue
                yield job(problem, launch, seed, token=(1, 2, 8, 32)[seed % 4])
