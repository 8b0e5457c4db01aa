"""Compiled ahead of need is what a run launches: the same kernels, specialised on the same arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs import launch, problem
from moeshapes.backends.base import UnsupportedRowError
from moeshapes.problem import Activation, Problem
from moeshapes.recipe import RECIPES, QType
from moeshapes.workload import Layer, draw_calls, draw_layer
from process import environment

pytest.importorskip("triton", reason="Triton is not installed")

from moeshapes.backends.portable import backend, quantisers, sorting
from moeshapes.backends.portable.backend import PortableLayer
from moeshapes.backends.portable.compile import compile_row, meta_call, meta_layer

SUPPORTED = ("bf16", "fp8_token", "fp8_block", "mxfp8", "a8w4", "a16w4", "a4w4")
COUNTS = (1, 5, 16)
Seen = list[tuple[object, ...]]
"""What Triton tells launches apart by: the kernel, each argument's specialisation, and the options."""


def specialised(argument: object) -> object:
    if isinstance(argument, Tensor):
        two_gib = argument.untyped_storage().nbytes() < 1 << 31
        return argument.dtype, argument.data_ptr() % 16 == 0, two_gib
    if isinstance(argument, int) and not isinstance(argument, bool):
        return "int", argument == 1, argument % 16 == 0, argument.bit_length() > 31
    return type(argument)


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """Launches are noted, and nothing runs."""
    seen: Seen = []

    def note(kernel: Any, grid: Sequence[int], *arguments: Any, **options: Any) -> None:
        constants = tuple(sorted((name, getattr(value, "value", value)) for name, value in options.items()))
        seen.append((kernel.fn.__name__, *map(specialised, arguments), constants))

    with monkeypatch.context() as patch:
        for module in (backend, quantisers, sorting):
            patch.setattr(module, "launch", note)
        yield seen


def problem_for(recipe: str) -> Problem:
    pads = {} if RECIPES[recipe].q_type is QType.PER_1X128 else {"hidden_pad": 32, "intermediate_pad": 32}
    swiglu = Activation("swiglu", limit=7.0, alpha=1.702)
    return problem(recipe, expert=5, shared_experts=1, activation=swiglu, bias=recipe != "bf16", **pads)


def rows_for(recipe: str) -> list[dict[str, Any] | None]:
    what = RECIPES[recipe]
    formats = f"a{what.a.value}_w{what.w.value}_bf16_t32x64x128_w4_s3"
    fused = f"_{what.a.value}" if what.q_type is QType.PER_1X32 and what.quantises_activations else ""
    row = launch(f"triton_moe1_{formats}{fused}", f"triton_moe2_{formats}_reduce", block_m=32)
    return [None, row]


@pytest.mark.parametrize("recipe", SUPPORTED)
def test_what_is_compiled_is_what_runs(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what = problem_for(recipe)
    drawn = draw_layer(what, 1, torch.device("cpu"), 1 << 40)
    for row in rows_for(recipe):
        for tokens in COUNTS:
            with recorded(monkeypatch) as real:
                PortableLayer(drawn).arm(row, tokens).run(draw_calls(drawn, tokens, 1)[0])
            with recorded(monkeypatch) as ahead:
                PortableLayer(meta_layer(what)).arm(row, tokens).run(meta_call(what, tokens))
            assert ahead == real
            assert {"stage1", "stage2", "count_slots", "place_slots"} <= {name for name, *_ in real}


def tensors(layer: Layer) -> list[tuple[torch.dtype, tuple[int, ...]] | None]:
    weights = [layer.w1[0], layer.w1[-1], layer.w2[0], layer.w2[-1]]
    found = [part for weight in weights for part in (weight.codes, weight.scales)]
    found += [layer.set_of, layer.bias1, layer.bias2, layer.channel_gain]
    return [None if each is None else (each.dtype, tuple(each.shape)) for each in found]


@pytest.mark.parametrize("recipe", SUPPORTED)
def test_a_layer_without_memory_has_a_drawn_ones_types_and_shapes(recipe: str) -> None:
    what = problem_for(recipe)
    drawn, bare = draw_layer(what, 1, torch.device("cpu"), 1 << 40), meta_layer(what)
    assert tensors(bare) == tensors(drawn)
    assert (len(bare.w1), len(bare.w2)) == (len(drawn.w1), len(drawn.w2))
    assert bare.device.type == "meta"


def test_every_kernel_is_compiled_and_none_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.jit import JITFunction

    warmed = list[str]()

    class Compiled:
        def __init__(self, name: str) -> None:
            self.metadata = type("Metadata", (), {"name": name, "num_warps": 4, "num_stages": 3})

    def warmup(kernel: Any, *arguments: Any, grid: object, **options: Any) -> Compiled:
        warmed.append(kernel.fn.__name__)
        names = {
            "stage1": "triton_moe1_afp8_wfp4_bf16_t32x64x128_fp8",
            "stage2": "triton_moe2_afp8_wfp4_bf16_t32x64x128_reduce",
        }
        return Compiled(names.get(kernel.fn.__name__, "another"))

    def run(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a kernel was launched")

    monkeypatch.setattr(JITFunction, "warmup", warmup)
    monkeypatch.setattr(JITFunction, "run", run)
    row = rows_for("a8w4")[1]
    names = compile_row(problem_for("a8w4"), row, 8, (8, 5))
    assert row
    assert names == [row["kernelName1"], row["kernelName2"]]
    assert warmed == 2 * ["count_slots", "place_slots", "quantise_mx", "stage1", "stage2", "add_slots"]


def test_what_no_kernel_computes_is_refused() -> None:
    with pytest.raises(UnsupportedRowError):
        compile_row(problem("int8"), None, 8, (8,))


def test_rows_are_compiled_for_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    from compiled import ROWS
    from moeshapes.kernel_name import parse
    from moeshapes.tune.candidates import pipeline_bytes

    script = Path(__file__).parent.parent / "compiled.py"
    own_cache = {**environment(), "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script), *ROWS], capture_output=True, text=True, check=False, env=own_cache
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for recipe, names in ROWS.items():
        assert found[recipe]["names"] == list(names)
        parsed = [kernel for name in names if (kernel := parse(name))]
        least = [pipeline_bytes(kernel, RECIPES[recipe]) for kernel in parsed]
        assert all(0.5 * real <= low <= real for low, real in zip(least, found[recipe]["shared"], strict=True))
        # wgmma adds fp8 products too coarsely to be right (sensitivity/test_coarse_sums.py).
        assert found[recipe]["products"]
        assert not [product for product in found[recipe]["products"] if "e4m3" in product]
