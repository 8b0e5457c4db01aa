"""Every lie is caught under every recipe that it applies to; the honest arm is never accused."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

import pytest
import torch

from moeshapes.backends.emulate import EmulateBackend, EmulatedArm
from moeshapes.recipe import RECIPES
from moeshapes.verify.check import LayerCache, check
from sensitivity.lies import LIES, Lie, OrderVaries
from sensitivity.matrix import Bench, over_limit
from sensitivity.problems import honest_jobs, job, loaded

SMALL_DIMS = (512, 256)
FEW_SETS = 2_500_000
HONEST_SEEDS = 16


@cache
def bench(recipe: str) -> Bench:
    return Bench.of(job(loaded(recipe, *SMALL_DIMS), None, seed=1, max_elements=FEW_SETS))


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_lie_is_caught(recipe: str, lie: Lie) -> None:
    """The loaded problem has everything, so that every lie applies to it."""
    assert lie.applies(bench(recipe).job.problem)
    result = bench(recipe).check(lie.arm)
    assert result["verdict"] == "fail"
    assert result["reasons"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_honest_arm_passes_the_problem_that_lies_are_caught_on(recipe: str) -> None:
    result = bench(recipe).check(EmulatedArm)
    assert (result["verdict"], result["reasons"]) == ("pass", [])
    assert all(count["deterministic"] for count in result["numerics"]["counts"].values())


@pytest.mark.parametrize("recipe", RECIPES)
def test_order_of_atomics_is_reported_and_not_failed(recipe: str) -> None:
    result = bench(recipe).check(OrderVaries)
    counts = result["numerics"]["counts"].values()
    assert result["verdict"] == "pass"
    assert not any(count["deterministic"] for count in counts)
    assert all(0 < float(count["spread"]) < 1 for count in counts)


def test_honest_combinations_are_at_least_two_hundred_and_cover_both_intermediates() -> None:
    jobs = list(honest_jobs(HONEST_SEEDS))
    assert len(jobs) >= 200
    assert Counter(wanted.problem.recipe_name for wanted in jobs).keys() == RECIPES.keys()


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_false_alarm(recipe: str) -> None:
    """Every shape, launch and seed of the recipe; where the arithmetic is modelled the margin is part of the claim."""
    backend, cache_of_layer, intermediates = EmulateBackend(), LayerCache(), set()
    for wanted in honest_jobs(HONEST_SEEDS):
        if wanted.problem.recipe_name == recipe:
            with torch.inference_mode():
                result = check(wanted, backend, cache_of_layer)
            assert result["verdict"] == "pass", (wanted, result["reasons"])
            numerics = result["numerics"]
            assert over_limit(result) < (0.9 if numerics["compared_with"] == "modelled" else 1), wanted
            intermediates.add(numerics["arithmetic"]["intermediate_from"])
    assert intermediates == ({"bf16", "fp32"} if recipe in ("a4w4", "a8w4", "mxfp8") else {"bf16"})


def test_a_block_of_one_expert_is_far_over_the_limit() -> None:
    """The faintest lies have to be caught with room to spare, or another seed would miss them."""
    shares = [over_limit(bench(recipe).check(lie.arm)) for recipe in ("a4w4", "bf16") for lie in LIES[1:3]]
    assert min(shares) > 2
    assert all(math.isfinite(share) for share in shares)
