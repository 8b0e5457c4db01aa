"""Small layers, jobs and plans for tests of the verifier: real in kind, quick on one core."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from moeshapes.problem import Activation, Problem
from moeshapes.row import LAUNCH_COLUMNS
from moeshapes.verify.job import Job

STAND_IN = Path(__file__).with_name("stand_in_worker.py")

MXMOE = ("flydsl_mxmoe_g1_a4w4_16x256x256_f16in_nt", "flydsl_mxmoe_g2_a4w4_16x256x256_atomic")


def problem(recipe: str = "a8w4", **changes: Any) -> Problem:
    """A layer of a few thousand weights, SiLU without a limit, but for what is changed."""
    small = Problem(
        model_dim=256,
        inter_dim=128,
        expert=8,
        topk=3,
        recipe_name=recipe,
        fnuz=False,
        activation=Activation("silu"),
    )
    return replace(small, **changes)


def launch(kernel1: str = "", kernel2: str = "", block_m: int = 16, **changes: int) -> dict[str, Any]:
    """A row's launch fields."""
    fields = dict(zip(LAUNCH_COLUMNS, (block_m, 0, kernel1, kernel2, 0, 0, 0), strict=True))
    return {**fields, **changes}


def job(name: str = "job", what: Problem | None = None, **changes: Any) -> Job:
    """A default plan at 4 tokens of bucket 4; its id is its name."""
    plain = Job(
        id=name,
        name=name,
        use_id="demo/tp1#target",
        token=4,
        counts=(4,),
        problem=what or problem(),
        launch=None,
        backend="emulate",
        device="cpu",
        seed=1,
        max_elements=1 << 20,
    )
    return replace(plain, **changes)
