"""The stand-in for a test, on a table that is empty or holds what the test writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import standin
from moeshapes.problem import Activation, Problem
from moeshapes.recipe import torch_dtype
from moeshapes.row import LAUNCH_COLUMNS, UNTUNED_COLUMNS
from moeshapes.workload import Call, Layer, draw_calls, draw_layer

SWIGLU = Activation("swiglu", 7.0, alpha=1.702)
SITUV2 = Activation("situv2", beta=4.0, linear_beta=25.0)
INTERLEAVED = ("a8w4", "mxfp8")
_SMALL = Problem(512, 256, expert=5, topk=3, recipe_name="a8w4", fnuz=False, activation=Activation("silu"))
_ALL_DISTINCT = 1 << 24
TOKENS = 4
_COLUMNS = ("gfx", "cu_num", *UNTUNED_COLUMNS, *LAUNCH_COLUMNS, "us1", "err1", "us2", "err2", "us", "tflops", "bw")


def problem(recipe: str, **changes: Any) -> Problem:
    """A small layer of the recipe, in the gate mode that its kernels read, with an activation that AITER serves."""
    usual: dict[str, Any] = {
        "recipe_name": recipe,
        "interleave": recipe in INTERLEAVED,
        "activation": SWIGLU if recipe == "a16w4" else Activation("silu"),
    }
    return replace(_SMALL, **{**usual, **changes})


def drawn(what: Problem, tokens: int = TOKENS) -> tuple[Layer, Call]:
    """A layer with all its experts distinct, and a call of production-like tokens."""
    layer = draw_layer(what, 5, torch.device("cpu"), _ALL_DISTINCT)
    return layer, draw_calls(layer, tokens, 6)[0]


def table(*rows: Mapping[str, object]) -> str:
    """A tuned table's text; cells that a row does not name are empty."""
    lines = [",".join(str(row.get(name, "")) for name in _COLUMNS) for row in rows]
    return "\n".join([",".join(_COLUMNS), *lines, ""])


def row_of(what: Problem, kernel1: str, kernel2: str, token: int = TOKENS, **cells: object) -> dict[str, object]:
    """The row of a problem's key on gfx950, untimed."""
    recipe = what.recipe
    return {
        "gfx": "gfx950",
        "cu_num": 256,
        "token": token,
        "model_dim": what.model_dim,
        "inter_dim": what.inter_dim,
        "expert": what.expert,
        "topk": what.topk,
        "act_type": f"ActivationType.{what.activation.kind.capitalize()}",
        "dtype": "torch.bfloat16",
        "q_dtype_a": torch_dtype(recipe.a, "gfx950"),
        "q_dtype_w": torch_dtype(recipe.w, "gfx950"),
        "q_type": recipe.q_type,
        "use_g1u1": 1,
        "doweight_stage1": int(what.doweight_stage1),
        "block_m": 32,
        "ksplit": 0,
        "kernelName1": kernel1,
        "kernelName2": kernel2,
        "run_1stage": 0,
        "xbf16": 0,
        "flat": 0,
        **cells,
    }


@contextmanager
def serving(
    folder: Path,
    *rows: Mapping[str, object],
    gfx: str = "gfx950",
    lies: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **settings: Any,
) -> Iterator[ModuleType]:
    """The stand-in with a table of these rows alone, asking for fp8 activations at any token count."""
    path = folder / "table.csv"
    path.write_text(table(*rows), encoding="utf-8")
    variables = {"AITER_CONFIG_FMOE": str(path), "AITER_BF16_FP8_MOE_BOUND": "0", **(env or {})}
    with standin.installed(gfx=gfx, lies=lies, env=variables, **settings) as aiter:
        yield aiter


def fused_moe(**arguments: Any) -> torch.Tensor:
    """The installed stand-in's."""
    output: torch.Tensor = import_module("aiter.fused_moe").fused_moe(**arguments)
    return output
