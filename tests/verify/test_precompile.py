"""Kernels are compiled ahead of need by processes that end with who started them, and whose errors cost nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import compilers
from gpus import gpu
from jobs import job, launch, problem
from moeshapes.verify import precompile
from moeshapes.verify.job import Job
from moeshapes.verify.precompile import Task, precompiling, tasks_of
from process import environment, is_running, wait_for

H200 = gpu(index=3)
ROW, OTHER = launch("one", "two"), launch("three", "four")


def on_gpu(token: int = 4, **changes: Any) -> Job:
    plain = job(backend="portable", gpu=H200.kind, device="cuda")
    return replace(plain, **{"token": token, **changes})


def launches(*jobs: Job) -> list[object]:
    return [task.launch for task in tasks_of(jobs, [H200])]


# --- what is compiled


def test_a_row_what_runs_without_it_and_what_it_replaces_are_compiled() -> None:
    assert launches(on_gpu(launch=ROW, replaced=OTHER)) == [ROW, None, OTHER]


def test_what_jobs_share_is_compiled_once() -> None:
    assert launches(on_gpu(launch=ROW), on_gpu(launch=OTHER, use_id="another"), on_gpu()) == [ROW, None, OTHER]


@pytest.mark.parametrize("changes", [{"token": 8}, {"counts": (4, 3)}, {"problem": problem("a4w4")}], ids=str)
def test_what_differs_for_a_kernel_is_compiled_apart(changes: dict[str, Any]) -> None:
    assert launches(on_gpu(), on_gpu(**changes)) == [None, None]


def test_it_is_compiled_for_the_first_gpu_of_the_jobs_kind() -> None:
    others = [gpu(index=1, cu_num=78), H200, gpu(index=4)]
    assert tasks_of([on_gpu()], others) == [Task(on_gpu().problem, None, 4, (4,), 3)]


@pytest.mark.parametrize(
    "changes", [{"backend": "emulate"}, {"backend": "production"}, {"gpu": ""}, {"gpu": "other/1"}]
)
def test_nothing_is_compiled_for_other_backends_and_without_a_gpu(changes: dict[str, Any]) -> None:
    assert launches(on_gpu(**{"launch": ROW, **changes})) == []


# --- the processes


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notes"
    monkeypatch.setenv(compilers.NOTES, str(path))
    return path


def noted(path: Path) -> list[tuple[int, int]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(int(pid), int(token)) for pid, token in (line.split() for line in lines)]


@pytest.mark.parametrize("compiler", [compilers.note, compilers.note_and_fail])
def test_all_is_compiled_whatever_fails(compiler: object, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompile, "_compile", compiler)
    with precompiling([on_gpu(token) for token in (1, 2, 4)], [H200], 2):
        assert wait_for(lambda: len(noted(notes)) == 3, 20)
    assert {token for _, token in noted(notes)} == {1, 2, 4}
    assert os.getpid() not in {pid for pid, _ in noted(notes)}


def test_what_is_still_compiled_ends_with_the_body(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompile, "_compile", compilers.note_and_hang)
    with precompiling([on_gpu(1), on_gpu(2)], [H200], 1):
        assert wait_for(lambda: bool(noted(notes)), 20)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert wait_for(lambda: not multiprocessing.active_children(), 10)
    assert len(noted(notes)) == 1


def test_a_compiler_that_dies_stops_nothing(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompile, "_compile", compilers.note_and_die)
    with precompiling([on_gpu(1)], [H200], 1):
        assert wait_for(lambda: bool(noted(notes)), 20)


def test_no_process_is_started_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompile, "ProcessPoolExecutor", None)
    with precompiling([on_gpu(backend="emulate")], [H200], 4), precompiling([on_gpu()], [H200], 0):
        pass


def test_compilers_end_with_a_parent_that_is_killed(notes: Path) -> None:
    environ = {**environment(), compilers.NOTES: str(notes)}
    script = str(Path(compilers.__file__))
    with subprocess.Popen([sys.executable, script], env=environ, stderr=subprocess.DEVNULL) as parent:
        assert wait_for(lambda: bool(noted(notes)), 20)
        parent.send_signal(signal.SIGKILL)
    ((pid, _),) = noted(notes)
    assert wait_for(lambda: not is_running(pid), 10)
