"""The portable backend: its kernels in Triton's interpreter, its sorting, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from jobs import job, launch, problem
from moeshapes.arithmetic import arithmetic_of, default_arithmetic
from moeshapes.backends.base import UnsupportedRowError
from moeshapes.kernel_name import parse
from moeshapes.portable import default_launch
from moeshapes.recipe import RECIPES
from moeshapes.verify.check import LayerCache, check
from moeshapes.verify.pool import Pool
from moeshapes.workload import draw_layer
from process import environment

pytest.importorskip("triton", reason="Triton is not installed")

from moeshapes.backends.portable.backend import PortableArm, PortableBackend

SUPPORTED = ("bf16", "fp8_token", "fp8_block", "mxfp8", "a8w4", "a16w4", "a4w4")
BLOCK_256 = ("triton_moe1_afp8_wfp8_bf16_t16x64x256_w4_s2", "triton_moe2_afp8_wfp8_bf16_t16x64x256_w4_s2_atomic")
A8W4 = ("triton_moe1_afp8_wfp4_bf16_t16x64x128_w4_s2", "triton_moe2_afp8_wfp4_bf16_t16x64x128_w4_s2_reduce")


# --- kernels


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """Errors over their limits by recipe, and what is sorted or quantised wrongly: from a process that interprets."""
    script = Path(__file__).parent.parent / "interpreted.py"
    done = subprocess.run(
        [sys.executable, str(script), *SUPPORTED, "sorting", "quantisers"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("recipe", SUPPORTED)
def test_interpreted_kernels_are_right(recipe: str, interpreted: dict[str, Any]) -> None:
    assert interpreted[recipe]["whole"] <= 1
    assert interpreted[recipe]["stage 2"] <= 1


@pytest.mark.parametrize("recipe", SUPPORTED)
def test_interpreted_kernels_that_miss_something_are_wrong(recipe: str, interpreted: dict[str, Any]) -> None:
    assert interpreted[recipe]["without biases"] > 1


@pytest.mark.gpu
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("mode", ["reduce", "atomic"])
@pytest.mark.parametrize("recipe", SUPPORTED)
def test_a_gpu_passes_the_whole_check(recipe: str, mode: str, fused: bool) -> None:
    if fused and recipe not in ("mxfp8", "a8w4", "a4w4"):
        pytest.skip("stage 1 of this recipe writes bf16 alone")
    a, w = RECIPES[recipe].a.value, RECIPES[recipe].w.value
    tile = f"a{a}_w{w}_bf16_t16x128x128_w4_s2"
    row = launch(f"triton_moe1_{tile}{f'_{a}' if fused else ''}", f"triton_moe2_{tile}_{mode}")
    pads = {} if recipe == "fp8_block" else {"hidden_pad": 32, "intermediate_pad": 32}
    what = problem(recipe, model_dim=512, inter_dim=256, expert=33, bias=True, shared_experts=1, **pads)
    wanted = job(what=what, token=8, counts=(8, 5, 6), launch=row, backend="portable", device="cuda")
    with torch.inference_mode():
        result = check(wanted, PortableBackend(), LayerCache())
    assert (result["verdict"], result["reasons"]) == ("pass", [])


# --- sorting and quantisers


def test_slots_are_sorted_as_the_emulated_backend_sorts_them_up_to_a_fixed_number_of_tiles(
    interpreted: dict[str, Any],
) -> None:
    assert interpreted["sorting"] == []


def test_activations_are_quantised_to_the_bit_as_the_references_do(interpreted: dict[str, Any]) -> None:
    assert interpreted["quantisers"] == []


# --- what it takes


def arm(recipe: str, row: dict[str, Any] | None, token: int = 4, **changes: Any) -> PortableArm:
    layer = draw_layer(problem(recipe, **changes), 1, torch.device("cpu"), 1 << 20)
    return PortableBackend().prepare(layer).arm(row, token)


@pytest.mark.parametrize("tokens", [1, 64, 65, 2047, 2048, 32768])
@pytest.mark.parametrize("recipe", SUPPORTED)
def test_what_runs_without_a_row_is_named_as_rows_are(recipe: str, tokens: int) -> None:
    row = default_launch(RECIPES[recipe], tokens)
    names = [row["kernelName1"], row["kernelName2"]]
    parsed = [parse(name) for name in names]
    assert [name.render() for name in parsed if name] == names
    assert {name.tile_m for name in parsed if name} == {row["block_m"]}
    assert arm(recipe, None, tokens).named() == names
    stated, assumed = arithmetic_of(row, RECIPES[recipe]), default_arithmetic(RECIPES[recipe], tokens)
    assert (stated.combine, stated.intermediate_from) == (assumed.combine, assumed.intermediate_from)


@pytest.mark.parametrize("recipe", sorted(RECIPES.keys() - set(SUPPORTED)))
def test_recipes_without_kernels_are_refused(recipe: str) -> None:
    with pytest.raises(UnsupportedRowError, match=f"no kernels for {recipe}$"):
        arm(recipe, None)


@pytest.mark.parametrize("recipe", ["fp8_token", "fp8_block", "mxfp8", "a8w4"])
def test_the_other_fp8_is_refused(recipe: str) -> None:
    with pytest.raises(UnsupportedRowError, match="e4m3fnuz"):
        arm(recipe, None, fnuz=True)


@pytest.mark.parametrize(
    ("recipe", "row", "reason"),
    [
        ("a4w4", launch(*A8W4), "does not take the formats of a4w4"),
        ("a8w4", launch(*A8W4, block_m=32), "reads tiles of 16 rows, block_m is 32"),
        ("a8w4", launch(A8W4[0], A8W4[1].replace("t16x", "t32x")), "reads tiles of 32 rows, block_m is 16"),
        ("a8w4", launch(A8W4[1], A8W4[1]), "is no stage-1 kernel"),
        ("a8w4", launch(A8W4[0], ""), "is no stage-2 kernel"),
        ("a8w4", launch(A8W4[0] + "_fp4", A8W4[1]), "writes fp4, which stage 2 of a8w4 does not read"),
        ("fp8_block", launch(*BLOCK_256), "steps over more than one scale block of 128"),
    ],
)
def test_a_row_that_the_kernels_would_misread_is_refused(recipe: str, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedRowError, match=reason):
        arm(recipe, row)


def test_a_worker_runs_them_in_the_interpreter_and_does_not_call_that_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    what = problem("a8w4", expert=3, topk=2)
    wanted = job(what=what, token=1, counts=(1,), launch=launch(*A8W4), backend="portable", thorough=False)
    (outcome,) = Pool(1, 1, 300.0).run([wanted])
    assert outcome.result, outcome.error
    assert (outcome.result["verdict"], outcome.result["reasons"]) == ("pass", [])
    assert (outcome.result["emulated"], outcome.result["device"]) == (True, {"kind": "cpu"})
    assert outcome.result["launched"] == list(A8W4)
