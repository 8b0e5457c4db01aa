"""Twenty rows, on four of which a worker breaks down, each in its own way: one run says what happened to them and
judges the other sixteen, and the next run has only the four to do. Likewise where the run itself is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from moeshapes.verify.gpus import Gpu, local_gpus
from moeshapes.verify.pool import Pool
from planted_worker import ENDLESS, FAULTS, KILLED, NOTES, PLANTED, TOO_LARGE, WILD, planted_pool
from process import children_of, environment, is_running, run_moeshapes, wait_for
from small_repository import portable_line, write_both_backends
from table_text import text, write

TOKENS = range(1, 21)
TABLE = "twenty_tuned_fmoe.csv"
TESTS = Path(__file__).resolve().parent.parent


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notes"
    monkeypatch.setenv(NOTES, str(path))
    return path


def plant(monkeypatch: pytest.MonkeyPatch, *tokens: int) -> None:
    monkeypatch.setenv(FAULTS, " ".join(map(str, tokens)))


def repository(folder: Path, gpu: Gpu | None = None) -> Path:
    """A repository and, beside it, a table of twenty rows of portable kernels of one shape, for a GPU."""
    of_gpu = {} if gpu is None else {"gfx": gpu.gfx, "cu_num": str(gpu.cu_num)}
    write(folder / TABLE, text(*(portable_line(token, **of_gpu) for token in TOKENS)))
    return write_both_backends(folder / "ours")


def begun(notes: Path) -> list[str]:
    """The jobs that were begun since this was last asked."""
    found = notes.read_text(encoding="utf-8").split() if notes.exists() else []
    notes.unlink(missing_ok=True)
    return found


def verified(root: Path, *options: str) -> tuple[int, dict[int, tuple[str, str]]]:
    """The exit status, and by a row's token count what became of it and why."""
    done = run_moeshapes("verify", f"../{TABLE}", "--no-speed", "--format", "json", *options, cwd=root)
    results = json.loads(done.stdout)["results"]
    tokens = (int(result["name"].partition(" token ")[2].split()[0]) for result in results)
    return done.returncode, {
        token: (result["status"], result["note"]) for token, result in zip(tokens, results, strict=True)
    }


def use_pool(monkeypatch: pytest.MonkeyPatch, limit_s: float, build_limit_s: float) -> None:
    def pool(gpus: Sequence[Gpu], _: float) -> Pool:
        return planted_pool(gpus, limit_s, build_limit_s)

    monkeypatch.setattr("moeshapes.commands.verify.local_pool", pool)


def check_planted(
    run: Callable[[], tuple[int, dict[int, tuple[str, str]]]],
    passed: str,
    reasons: dict[int, str],
    notes: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, *PLANTED)
    status, found = run()
    assert status == 1
    assert found.keys() == set(TOKENS)
    assert {token for token, (what, _) in found.items() if what == passed} == set(TOKENS) - set(PLANTED), found
    assert {token: found[token][0] for token in PLANTED} == dict.fromkeys(PLANTED, "error")
    for token, reason in reasons.items():
        assert reason in found[token][1]
    jobs = begun(notes)
    assert len(jobs) == len(set(jobs)) == len(TOKENS)

    plant(monkeypatch)
    status, found = run()
    assert (status, {what for what, _ in found.values()}) == (0, {passed})
    again = begun(notes)
    assert len(again) == len(PLANTED)
    assert set(again) < set(jobs)


def test_four_breakdowns_among_twenty_rows_cost_no_other_row_anything(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(tmp_path)
    use_pool(monkeypatch, limit_s=4.0, build_limit_s=20.0)
    reasons = {
        KILLED: "the worker was killed by SIGKILL (out of memory?)",
        ENDLESS: "took longer than 4 s and was stopped",
        WILD: "the worker was killed by SIGSEGV",
        TOO_LARGE: "can't allocate memory: you tried to allocate 1125899906842624 bytes",
    }
    check_planted(lambda: verified(root, "--backend", "emulate"), "emulated", reasons, notes, monkeypatch)


@pytest.mark.gpu
def test_four_breakdowns_of_real_kernels_cost_no_other_row_anything(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endless kernel is met while the job's kernels are built: that has a limit of its own, short here."""
    root = repository(tmp_path, local_gpus().gpus[0])
    use_pool(monkeypatch, limit_s=20.0, build_limit_s=40.0)
    reasons = {
        KILLED: "the worker was killed by SIGKILL (out of memory?)",
        ENDLESS: "took longer than 40 s and was stopped",
        WILD: "illegal memory access",
        TOO_LARGE: "out of memory. Tried to allocate",
    }
    check_planted(lambda: verified(root), "proven", reasons, notes, monkeypatch)


def test_what_was_finished_when_a_run_was_killed_is_not_done_again(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run hangs on one row, so that it is there to be killed when the others are done.

    The worker that hangs, which reads no closed pipe, ends too.
    """
    root = repository(tmp_path)
    plant(monkeypatch, ENDLESS)
    paths = environment()
    paths["PYTHONPATH"] += f"{os.pathsep}{TESTS}"
    command = [sys.executable, str(TESTS / "planted_verify.py"), "verify", f"../{TABLE}", "--backend", "emulate"]
    records = root / "build" / "records"
    with subprocess.Popen(command, cwd=root, env=paths, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        try:
            assert wait_for(lambda: len(list(records.glob("*.json"))) >= len(TOKENS) - 2, 60)
            assert run.poll() is None
            workers = children_of(run.pid)
        finally:
            run.send_signal(signal.SIGKILL)
    assert workers
    assert wait_for(lambda: not any(map(is_running, workers)), 10)
    kept = {path.stem for path in records.glob("*.json")}
    first = set(begun(notes))
    assert kept < first

    plant(monkeypatch)
    use_pool(monkeypatch, limit_s=20.0, build_limit_s=20.0)
    status, found = verified(root, "--backend", "emulate")
    assert (status, {what for what, _ in found.values()}) == (0, {"emulated"})
    again = begun(notes)
    assert len(again) == len(TOKENS) - len(kept)
    assert not set(again) & kept
