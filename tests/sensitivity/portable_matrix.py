"""Fault × recipe over the portable kernels: on a GPU at real dims, or in Triton's interpreter on a small layer."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any

import torch

from moeshapes.backends.portable.backend import PortableBackend, PortableLayer
from moeshapes.commands.progress import progress
from moeshapes.portable import why_no_kernels
from moeshapes.problem import Activation, Problem
from moeshapes.recipe import RECIPES, QType
from moeshapes.verify.check import LayerCache, check
from moeshapes.verify.gpus import describe
from moeshapes.verify.job import EVERY_EXPERT, Job
from moeshapes.verify.plan import counts_of
from moeshapes.verify.runs import A
from moeshapes.workload import Layer, draw_calls, draw_layer
from sensitivity.matrix import REAL_DIMS, cell, over_limit
from sensitivity.portable_lies import APPLIES, HONEST, ORDER_VARIES, WAYS, LyingLayer, Way
from sensitivity.problems import job, loaded

FALSE_ALARM, MISSED, UNSEEN, BROKEN = "FALSE ALARM", "MISSED", "UNSEEN", "BROKEN"
WITH_KERNELS = tuple(name for name, recipe in RECIPES.items() if not why_no_kernels(recipe, fnuz=False))
LIES = tuple(WAYS)
_TILE = "t16x64x128_w4_s2"
"""64 columns, so that tiles of padded columns alone can be left out."""
_CLAMPED_SILU = Activation("silu", limit=10.0)


@dataclass(frozen=True)
class Trial:
    """What a column is made of: `device`, so many seeds for the honest kernels, and the lies to try."""

    device: str = "cuda"
    seeds: int = 3
    lies: tuple[str, ...] = LIES

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def title(self) -> str:
        if self.on_gpu:
            return f"{REAL_DIMS[0]}x{REAL_DIMS[1]}, 385 experts top-7, bucket 8, {describe(0).board}"
        return "a small layer, bucket 2, Triton's interpreter"

    def problem(self, recipe: str, seed: int) -> Problem:
        """With everything that a layer can have. Lies are tried on seed 1's Swiglu, which saturates at 56: 448 / 8,
        where an e8m0 scale changes, and 16 times 3.5, halfway between two fp4 codes.
        """
        found = loaded(recipe, *REAL_DIMS)
        if not self.on_gpu:
            found = replace(loaded(recipe, 128, 128), expert=4, topk=3, hidden_pad=64)
        return found if seed % 2 else replace(found, activation=_CLAMPED_SILU)


def can_fuse(recipe: str) -> bool:
    """Whether there is a stage 1 that quantises in its epilogue."""
    return RECIPES[recipe].q_type is QType.PER_1X32 and RECIPES[recipe].quantises_activations


def launches(recipe: str) -> dict[str, dict[str, Any]]:
    """Rows of the recipe by what is said of them: how slots are added, and whether stage 1 quantises."""
    formats = RECIPES[recipe]
    kernels = f"a{formats.a.value}_w{formats.w.value}_bf16_{_TILE}"
    return {
        f"{'fused ' if fused else ''}{mode}": {
            "block_m": 16,
            "ksplit": 0,
            "kernelName1": f"triton_moe1_{kernels}{f'_{formats.a.value}' if fused else ''}",
            "kernelName2": f"triton_moe2_{kernels}_{mode}",
            "run_1stage": 0,
            "xbf16": 0,
            "flat": 0,
        }
        for fused in (False, *([True] if can_fuse(recipe) else []))
        for mode in ("reduce", "atomic")
    }


@dataclass(frozen=True)
class PortableBench:
    """A layer that is drawn and prepared once for all lies; `victim` is an expert that its calls hit."""

    job: Job
    layer: Layer
    honest: PortableLayer
    victim: int

    @classmethod
    def of(cls, recipe: str, trial: Trial, seed: int) -> PortableBench:
        token = 8 if trial.on_gpu else 2
        drawn = job(trial.problem(recipe, seed), None, seed, token, EVERY_EXPERT)
        gpu = describe(0).kind if trial.on_gpu else ""
        wanted = replace(drawn, backend="portable", device=trial.device, gpu=gpu)
        layer = draw_layer(wanted.problem, seed, torch.device(trial.device), wanted.max_elements)
        # The first expert of the first call, which the verifier draws likewise.
        count = counts_of(token)[0]
        victim = int(draw_calls(layer, count, seed + count)[A].topk_ids[0, 0])
        return cls(wanted, layer, PortableBackend().prepare(layer), victim)

    def check(self, way: Way, launch: dict[str, Any]) -> dict[str, Any]:
        """The verifier's result for a row of these launch fields."""
        wanted = replace(self.job, launch=launch)
        cache = LayerCache(wanted.layer_key, self.layer, LyingLayer(self.honest, way, self.victim))
        with torch.inference_mode():
            return check(wanted, PortableBackend(), cache)


def rows_of(lies: Sequence[str]) -> list[str]:
    """What the matrix has rows for, in order."""
    honest = [f"honest {how}" for how in ("reduce", "atomic", "fused reduce", "fused atomic")]
    return [*honest, "OrderVaries", *lies]


def column(recipe: str, trial: Trial) -> dict[str, str]:
    """A recipe's cells by their rows: the largest share of the limit of what is honest, the smallest of a lie's."""
    # One layer at a time: on a GPU each takes gigabytes.
    honest = [_honest_cells(PortableBench.of(recipe, trial, seed)) for seed in range(1, trial.seeds + 1)]
    worst = {
        name: max((cells[name] for cells in honest), key=lambda shown: (is_wrong(shown), shown)) for name in honest[0]
    }
    return dict.fromkeys(rows_of(trial.lies), "–") | worst | _lie_cells(PortableBench.of(recipe, trial, seed=1), trial)


def _honest_cells(bench: PortableBench) -> dict[str, str]:
    rows = launches(bench.job.problem.recipe_name)
    return {f"honest {how}": _guarded(_honest, bench, row) for how, row in rows.items()}


def _lie_cells(bench: PortableBench, trial: Trial) -> dict[str, str]:
    rows = launches(bench.job.problem.recipe_name)
    told = [name for name in trial.lies if APPLIES[name](bench.job.problem)]
    cells = {name: _guarded(_lie, bench, WAYS[name], rows) for name in told}
    return cells | {"OrderVaries": _guarded(_order_varies, bench, rows["reduce"])}


def _guarded(cell_of: Callable[..., str], *arguments: Any) -> str:
    """A lie that cannot be told is none that was caught, and the other cells are wanted all the same."""
    try:
        return cell_of(*arguments)
    except Exception:
        traceback.print_exc()
        return BROKEN


def _lie(bench: PortableBench, way: Way, rows: dict[str, dict[str, Any]]) -> str:
    """Told by plain kernels that reduce and, where there are any, by fused ones with atomics."""
    return least([bench.check(way, rows[how]) for how in ("reduce", "fused atomic") if how in rows])


def least(results: Sequence[dict[str, Any]]) -> str:
    """The cell of the result that tells least of a lie."""
    return cell(min(results, key=lambda result: (result["verdict"] == "fail", over_limit(result))))


def _honest(bench: PortableBench, launch: dict[str, Any]) -> str:
    return _passing(bench.check(HONEST, launch))


def _order_varies(bench: PortableBench, launch: dict[str, Any]) -> str:
    result = bench.check(ORDER_VARIES, launch)
    return _passing(result) if _varies(result) else f"{_share(result)} {UNSEEN}"


def _passing(result: dict[str, Any]) -> str:
    return _share(result) if result["verdict"] == "pass" else f"{_share(result)} {FALSE_ALARM}"


def _share(result: dict[str, Any]) -> str:
    return f"{over_limit(result):.2f}{'~' if _varies(result) else ''}"


def _varies(result: dict[str, Any]) -> bool:
    return not all(count["deterministic"] for count in result["numerics"]["counts"].values())


def is_wrong(shown: str) -> bool:
    return any(word in shown for word in (FALSE_ALARM, MISSED, UNSEEN, BROKEN))


def matrix(recipes: Sequence[str], trial: Trial, processes: int) -> dict[str, dict[str, str]]:
    """A column a recipe, each in a process of its own, so many at a time."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        columns = {pool.submit(column, recipe, trial): recipe for recipe in recipes}
        with progress("sensitivity", len(recipes)) as report:
            for done in as_completed(columns):
                report(columns[done])
        return {recipe: found.result() for found, recipe in columns.items()}
