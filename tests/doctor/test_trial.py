"""The trial is a job like any other: it fits the GPU, and what becomes of it is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from gpus import gpu
from machines import MI355X
from moeshapes.doctor.trial import Trial, trial_job, try_aiter
from moeshapes.verify.job import Job

Command = Callable[[int, int | None], Sequence[str]]
MI300X = gpu(1, gfx="gfx942", cu_num=304)


def answering(**message: object) -> Command:
    """A worker that answers its one job so."""
    code = f"import json, sys; sys.stdin.readline(); print(json.dumps({json.dumps(message)}), flush=True)"
    return lambda threads, index: [sys.executable, "-c", code]


@pytest.mark.parametrize(
    ("result", "trial"),
    [
        ({"verdict": "pass", "reasons": [], "launched": ["ck"]}, Trial("gfx950/256", ("ck",))),
        (
            {"verdict": "fail", "reasons": ["token 3 is off", "NaN"], "launched": ["ck"]},
            Trial("gfx950/256", ("ck",), "token 3 is off; NaN"),
        ),
    ],
)
def test_what_the_worker_found_is_told(result: dict[str, object], trial: Trial) -> None:
    assert try_aiter(MI355X, answering(job="trial", result=result)) == trial


def test_a_worker_that_fails_is_told() -> None:
    found = try_aiter(MI355X, answering(job="trial", error="ImportError: libamdhip64.so"))
    assert found.launched == ()
    assert found.wrong.startswith("ImportError: libamdhip64.so")


def test_a_worker_that_dies_is_told() -> None:
    found = try_aiter(MI355X, lambda threads, index: [sys.executable, "-c", "import os; os._exit(11)"])
    assert "11" in found.wrong


def test_it_runs_on_the_gpu_that_it_is_for() -> None:
    seen: list[int | None] = []

    def command(threads: int, index: int | None) -> Sequence[str]:
        seen.append(index)
        return answering(job="trial", error="x")(threads, index)

    try_aiter(MI300X, command)
    assert seen == [1]


def test_its_fp8_is_the_gpus() -> None:
    assert trial_job(MI300X).problem.fnuz
    assert not trial_job(MI355X).problem.fnuz
    assert Job.from_json(trial_job(MI355X).to_json()) == trial_job(MI355X)


@pytest.mark.parametrize("on", [MI355X, MI300X], ids=["gfx950", "gfx942"])
def test_it_passes_on_aiters_stand_in(on: object) -> None:
    torch = pytest.importorskip("torch")
    import standin
    from moeshapes.backends.production.backend import ProductionBackend
    from moeshapes.verify.check import LayerCache, check

    job = trial_job(on)  # type: ignore[arg-type]
    with standin.installed(gfx=job.gpu.partition("/")[0]), torch.inference_mode():
        found = check(replace(job, device="cpu", gpu=""), ProductionBackend(), LayerCache())
    assert found["verdict"] == "pass", found["reasons"]
    assert found["launched"]
