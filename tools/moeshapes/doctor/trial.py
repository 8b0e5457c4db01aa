"""One small fused MoE through AITER on a GPU, judged like any other: whether first contact works at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moeshapes.problem import Activation, Problem
from moeshapes.recipe import fp8_is_fnuz
from moeshapes.statement import FAIL
from moeshapes.verify.gpus import Gpu
from moeshapes.verify.job import EVERY_EXPERT, Job
from moeshapes.verify.pool import Pool, default_command
from moeshapes.verify.site import PRODUCTION

_LIMIT_S = 1800.0
"""AITER compiles what it calls for the first time."""
_TOKENS = 16
_SEED = 1


@dataclass(frozen=True)
class Trial:
    """`launched` are the kernels that ran, `wrong` why it failed, empty where it passed."""

    gpu: str
    launched: tuple[str, ...] = ()
    wrong: str = ""


def trial_job(gpu: Gpu) -> Job:
    """Eight experts of fp8 with a scale a token, which every CDNA 3 and 4 GPU has kernels for, without a row."""
    problem = Problem(
        model_dim=2048,
        inter_dim=256,
        expert=8,
        topk=2,
        recipe_name="fp8_token",
        fnuz=fp8_is_fnuz(gpu.gfx),
        activation=Activation("silu"),
    )
    return Job(
        id="trial",
        name="trial",
        use_id="doctor#trial",
        token=_TOKENS,
        counts=(_TOKENS,),
        problem=problem,
        launch=None,
        backend=PRODUCTION,
        device="cuda",
        seed=_SEED,
        max_elements=EVERY_EXPERT,
        thorough=False,
        gpu=gpu.kind,
    )


def try_aiter(gpu: Gpu, command: Callable[[int, int | None], Sequence[str]] = default_command) -> Trial:
    """Runs it on that GPU, in a worker of that command line."""
    (outcome,) = Pool(workers=0, threads=1, limit_s=_LIMIT_S, command=command, gpus=[gpu]).run([trial_job(gpu)])
    result = outcome.result
    if result is None:
        return Trial(gpu.kind, wrong=outcome.error or "it ended without a word")
    wrong = "; ".join(result["reasons"]) or "it failed" if result["verdict"] == FAIL else ""
    return Trial(gpu.kind, tuple(result["launched"]), wrong)
