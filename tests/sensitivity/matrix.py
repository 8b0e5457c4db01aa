"""Prints fault × recipe: how far each lie is over the limit, at real dims. `python -m sensitivity.matrix`, or `make
sensitivity`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
import torch
from tabulate import tabulate

from moeshapes.backends.emulate import EmulateBackend, EmulatedArm, EmulatedLayer
from moeshapes.recipe import RECIPES
from moeshapes.verify.check import LayerCache, check
from moeshapes.verify.job import Job
from moeshapes.workload import Layer, draw_layer
from sensitivity.lies import LIES, Lie, LyingLayer, OrderVaries
from sensitivity.problems import job, loaded

REAL_DIMS = (5120, 640)


@dataclass(frozen=True)
class Bench:
    """A job whose layer is drawn and prepared once for all lies."""

    job: Job
    layer: Layer
    honest: EmulatedLayer

    @classmethod
    def of(cls, wanted: Job) -> Bench:
        layer = draw_layer(wanted.problem, wanted.seed, torch.device("cpu"), wanted.max_elements)
        return cls(wanted, layer, EmulateBackend().prepare(layer))

    def check(self, arm: type[EmulatedArm]) -> dict[str, Any]:
        """The verifier's result for an arm."""
        cache = LayerCache(self.job.layer_key, self.layer, LyingLayer(self.honest, arm))
        with torch.inference_mode():
            return check(self.job, EmulateBackend(), cache)


def over_limit(result: dict[str, Any]) -> float:
    """The largest share of its limit that any run or stage had."""
    numerics = result["numerics"]
    shares = [count[name] for count in numerics["counts"].values() for name in ("over_limit", "block_over_limit")]
    return max(float(share) for share in (*shares, *numerics["stages"].values()))


def cell(result: dict[str, Any]) -> str:
    """`12` for twelve times the limit; `NaN`; `row` where only the out buffer told; `MISSED` where nothing did."""
    if result["verdict"] == "pass":
        return "MISSED"
    share = over_limit(result)
    if math.isinf(share):
        return "NaN"
    return f"{share:.3g}" if share > 1 else "row"


def columns(model_dim: int, inter_dim: int) -> Iterator[tuple[str, Bench]]:
    for recipe in RECIPES:
        yield recipe, Bench.of(job(loaded(recipe, model_dim, inter_dim), None, seed=1, max_elements=64_000_000))


def matrix(model_dim: int, inter_dim: int) -> tuple[list[str], dict[str, list[str]]]:
    """The recipes, and for each lie a cell a recipe; `honest` and `OrderVaries` show their share of the limit
    instead.
    """
    recipes: list[str] = []
    rows: dict[str, list[str]] = {name: [] for name in ["honest", OrderVaries.__name__, *(lie.name for lie in LIES)]}
    for recipe, bench in columns(model_dim, inter_dim):
        recipes.append(recipe)
        for arm in (EmulatedArm, OrderVaries):
            name = "honest" if arm is EmulatedArm else arm.__name__
            result = bench.check(arm)
            alarm = "" if result["verdict"] == "pass" else " FALSE ALARM"
            rows[name].append(f"{over_limit(result):.2f}{alarm}")
        for lie in LIES:
            rows[lie.name].append(_cell(bench, lie))
        click.echo(f"{recipe}: {len(LIES)} lies tried", err=True)
    return recipes, rows


def _cell(bench: Bench, lie: Lie) -> str:
    return cell(bench.check(lie.arm)) if lie.applies(bench.job.problem) else "–"


def main() -> None:
    recipes, rows = matrix(*REAL_DIMS)
    click.echo(f"error over limit, {REAL_DIMS[0]}x{REAL_DIMS[1]}, 385 experts top-7, bucket 8 (1 is the limit)")
    click.echo(tabulate([[name, *cells] for name, cells in rows.items()], ["fault", *recipes], disable_numparse=True))
    faulty = any("MISSED" in cells or any("FALSE" in c for c in cells) for cells in rows.values())
    raise SystemExit(int(faulty))


if __name__ == "__main__":
    main()
