"""The lies as Triton kernels: some in the interpreter, all of them on a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from process import environment
from sensitivity import lies, matrix

pytest.importorskip("triton", reason="Triton is not installed")

from sensitivity import portable_matrix as kernels

ON_CPU = ("--backend", "portable", "--device", "cpu", "--seeds", "1")
INTERPRETED = ("PadUnwritten", "NanOnceInTen")
"""The lies that two kernels of their own tell; an arm whose order varies has the third."""


def test_each_lie_of_the_emulated_backend_is_told_by_the_portable_kernels() -> None:
    assert [lie.name for lie in lies.LIES] == list(kernels.LIES)


def test_interpreted_lies_are_caught_and_the_honest_kernels_are_not_accused(root: Path) -> None:
    """In a process of its own: whether Triton interprets is settled when kernels are defined."""
    chosen = [word for lie in INTERPRETED for word in ("--lie", lie)]
    command = [sys.executable, "-m", "sensitivity.matrix", *ON_CPU, "--recipe", "bf16", *chosen]
    paths = environment()
    paths["PYTHONPATH"] += f":{root / 'tests'}"
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=paths)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines()[3:-1])
    assert list(cells) == [name.strip() for name in kernels.rows_of(INTERPRETED)]
    assert [cells[lie] for lie in INTERPRETED] == ["NaN", "NaN"]
    assert float(cells["honest reduce"]) <= 1
    assert float(cells["honest atomic"]) <= 1
    assert cells["OrderVaries"].endswith("~")


@pytest.mark.parametrize("cell", [kernels.MISSED, f"1.20 {kernels.FALSE_ALARM}", f"0.40 {kernels.UNSEEN}"])
def test_a_matrix_with_a_wrong_cell_ends_with_status_1(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "")  # what the command sets is undone with it
    for shown, status in ((cell, 1), ("5.5", 0)):
        column = dict.fromkeys(kernels.rows_of(("Stale",)), "0.30") | {"Stale": shown}
        monkeypatch.setattr(kernels, "matrix", lambda *_, column=column: {"bf16": column})
        done = CliRunner().invoke(matrix.main, [*ON_CPU, "--recipe", "bf16", "--lie", "Stale"])
        assert (done.exit_code, shown in done.output) == (status, True)


def test_a_lie_that_one_of_two_launches_hides_is_missed() -> None:
    results = {"plain": _result("fail", 7.0), "fused": _result("pass", 0.5)}
    assert kernels.least(list(results.values())) == kernels.MISSED
    assert kernels.least([_result("fail", 7.0), _result("fail", 3.5)]) == "3.5"


def _result(verdict: str, share: float) -> dict[str, object]:
    count = {"over_limit": share, "block_over_limit": 0.0}
    return {"verdict": verdict, "numerics": {"counts": {"8": count}, "stages": {}}}


@pytest.mark.gpu
@pytest.mark.parametrize("recipe", kernels.WITH_KERNELS)
def test_on_a_gpu_every_lie_is_caught_and_nothing_honest_is_accused(recipe: str) -> None:
    cells = kernels.column(recipe, kernels.Trial())
    assert {name: shown for name, shown in cells.items() if kernels.is_wrong(shown)} == {}
