"""Prints fault × recipe: how far each lie is over the limit, at real dims. `make sensitivity`, or `python -m
sensitivity.matrix`; `--backend portable` has the lies told by Triton kernels, on a GPU or in Triton's interpreter.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import torch
from tabulate import tabulate

from moeshapes.backends.emulate import EmulateBackend, EmulatedArm, EmulatedLayer
from moeshapes.commands.progress import progress
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
    with progress("sensitivity", len(RECIPES) * len(rows)) as report:
        for recipe, bench in columns(model_dim, inter_dim):
            recipes.append(recipe)
            for name, shown in _column(bench):
                rows[name].append(shown)
                report(f"{recipe} {name}: {shown}")
    return recipes, rows


def _column(bench: Bench) -> Iterator[tuple[str, str]]:
    for name, arm in (("honest", EmulatedArm), (OrderVaries.__name__, OrderVaries)):
        result = bench.check(arm)
        alarm = "" if result["verdict"] == "pass" else " FALSE ALARM"
        yield name, f"{over_limit(result):.2f}{alarm}"
    for lie in LIES:
        yield lie.name, _cell(bench, lie)


def _cell(bench: Bench, lie: Lie) -> str:
    return cell(bench.check(lie.arm)) if lie.applies(bench.job.problem) else "–"


def _show(title: str, recipes: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    click.echo(f"error over limit, {title} (1 is the limit)")
    click.echo(tabulate([[name, *cells] for name, cells in rows.items()], ["fault", *recipes], disable_numparse=True))


def emulated() -> bool:
    """Prints the matrix of the emulated backend. Whether there is anything wrong in it."""
    recipes, rows = matrix(*REAL_DIMS)
    _show(f"{REAL_DIMS[0]}x{REAL_DIMS[1]}, 385 experts top-7, bucket 8", recipes, rows)
    return any("MISSED" in cells or any("FALSE" in c for c in cells) for cells in rows.values())


def portable(device: str, seeds: int, recipes: Sequence[str], lies: Sequence[str], processes: int) -> bool:
    """Prints the matrix of the portable kernels. Whether there is anything wrong in it."""
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    elif not torch.cuda.is_available():
        raise click.UsageError("there is no GPU; --device cpu runs the kernels in Triton's interpreter")
    # Here, since Triton settles whether it interprets when kernels are defined.
    from sensitivity import portable_matrix as kernels

    trial = kernels.Trial(device, seeds, tuple(lies) or kernels.LIES)
    tried = recipes or kernels.WITH_KERNELS
    columns = kernels.matrix(tried, trial, processes)
    rows = {name: [columns[recipe][name] for recipe in tried] for name in kernels.rows_of(trial.lies)}
    _show(f"{trial.title}, seeds 1 to {seeds} of what is honest", tried, rows)
    click.echo("~ runs of one call differ, which is reported and no failure")
    return any(kernels.is_wrong(shown) for cells in rows.values() for shown in cells)


def _of_portable(*names: str, text: str, **how: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An option that the portable backend alone has."""
    return click.option(*names, show_default=True, help=f"Of portable: {text}.", **how)


@click.command()
@click.option("--backend", type=click.Choice(["emulate", "portable"]), default="emulate", show_default=True)
@_of_portable("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", text="cpu interprets a small layer")
@_of_portable("--seeds", type=click.IntRange(min=1), default=3, text="layers that honest kernels get")
@_of_portable("--recipe", "recipes", type=click.Choice(list(RECIPES)), multiple=True, text="all that it has")
@_of_portable("--lie", "lies", type=click.Choice([lie.name for lie in LIES]), multiple=True, text="all")
@_of_portable("--processes", type=click.IntRange(min=1), default=1, text="recipes tried at once")
def main(
    backend: str, device: str, seeds: int, recipes: tuple[str, ...], lies: tuple[str, ...], processes: int
) -> None:
    """Print which lie is caught under which recipe, and by how much. Exit status 1 where one is not or honesty is."""
    wrong = emulated() if backend == "emulate" else portable(device, seeds, recipes, lies, processes)
    raise SystemExit(int(wrong))


if __name__ == "__main__":
    main()
