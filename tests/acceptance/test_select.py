"""`moeshapes select` as people run it, on a machine without an AMD GPU."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from moeshapes.commands import select as select_command
from moeshapes.select.tuner import SCRIPT
from moeshapes.verify.gpus import NO_GPUS, Gpu
from moeshapes.verify.pool import Pool
from process import TOOLS, run_moeshapes
from profiles import EXAMPLES, LIES, STAGE1, write_padded_repository
from small_repository import TABLE

KERNELS = EXAMPLES / "positive" / "kernels.csv"
SOURCE = ("--source", "made up")
PADLESS = TOOLS.parent / "tests" / "padless_worker.py"
TUNER = TOOLS.parent / "tests" / "select" / "stand_in_tuner.py"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose workers leave the pad unwritten where a kernel's name says `_xcd4`."""

    def pool(gpus: Sequence[Gpu], limit_s: float) -> Pool:
        return Pool(1, 1, limit_s, lambda threads, gpu: [sys.executable, str(PADLESS)])

    monkeypatch.setattr(select_command, "local_pool", pool)
    monkeypatch.setenv("PYTHONPATH", str(TOOLS.parent / "tests"))
    return write_padded_repository(tmp_path / "repository")


def test_a_fast_candidate_that_leaves_nan_in_padded_columns_loses_to_the_next(repository: Path) -> None:
    done = run_moeshapes("select", str(KERNELS), *SOURCE, "--allow-emulated", cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    lost, reason = done.stdout.splitlines()[1:3]
    assert lost.startswith("  lost    6.5 µs")
    assert LIES in lost
    assert "fail under tiny/tp2#target+zeros: " in reason
    assert "NaN" in reason
    (row,) = (repository / TABLE).read_text().splitlines()[1:]
    assert STAGE1.replace("t32x128", "t32x64").replace("_w2", "_w3_fp4") in row
    assert "Source: made up; emulated only, not proven on the GPU that it is for" in done.stdout
    again = run_moeshapes("select", str(KERNELS), *SOURCE, "--allow-emulated", cwd=repository)
    assert "emulated (cached)" in again.stderr
    assert "There already: " in again.stdout


def test_emulation_writes_nothing_by_itself(repository: Path) -> None:
    done = run_moeshapes("select", str(KERNELS), *SOURCE, "--format", "json", cwd=repository)
    assert (done.returncode, [found["rule"] for found in json.loads(done.stdout)]) == (1, ["MOE534"])
    assert "0 tables and 0 records written" in done.stderr
    assert not (repository / "generated").exists()


@pytest.mark.parametrize("path", sorted((EXAMPLES / "negative").glob("*.csv")), ids=lambda path: path.stem)
def test_a_bad_profile_changes_nothing_and_is_shown_line_by_line(path: Path, repository: Path) -> None:
    done = run_moeshapes("select", str(path), *SOURCE, cwd=repository)
    assert done.returncode == 1
    assert f"{path}:" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert not (repository / "generated").exists()


@pytest.mark.parametrize(
    ("options", "rule"),
    [(("--gfx", "gfx942"), "MOE531"), (("--rows", "tokens=8"), "MOE131"), (("--rows", "8"), "MOE131")],
)
def test_what_is_not_there_is_a_finding(options: tuple[str, str], rule: str, repository: Path) -> None:
    done = run_moeshapes("select", str(KERNELS), *SOURCE, *options, cwd=repository)
    assert done.returncode == 1
    assert rule in done.stdout


def test_a_source_is_required(repository: Path) -> None:
    for source in ((), ("--source", " ")):
        done = run_moeshapes("select", str(KERNELS), *source, cwd=repository)
        assert done.returncode == 2
        assert "say where the times come from" in done.stderr


# --- the tuner


@pytest.fixture
def aiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    script = tmp_path / "aiter" / SCRIPT
    script.parent.mkdir(parents=True)
    shutil.copy(TUNER, script)
    monkeypatch.setenv("STAND_IN_KERNELS", str(KERNELS))
    monkeypatch.setenv("STAND_IN_PAIRS", str(EXAMPLES / "positive" / "pairs.csv"))
    return tmp_path / "aiter"


def untuned(repository: Path) -> str:
    assert run_moeshapes("generate", cwd=repository).returncode == 0
    (path,) = repository.rglob("tiny_untuned_fmoe.csv")
    return str(path)


def test_without_an_amd_gpu_the_tuner_is_not_started_and_it_is_said_what_is_missing(
    repository: Path, aiter: Path
) -> None:
    done = run_moeshapes("select", "--tune", "--aiter", str(aiter), untuned(repository), *SOURCE, cwd=repository)
    assert done.returncode == 2
    assert "AITER's kernels cannot run here" in done.stderr
    assert "fix: " in done.stderr
    assert not (repository / "build").exists()


def test_the_tuners_candidates_are_chosen_from(repository: Path, aiter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select_command, "require_aiter", lambda: NO_GPUS)
    asked = ("select", "--tune", "--aiter", str(aiter), untuned(repository), *SOURCE, "--allow-emulated")
    done = run_moeshapes(*asked, "--err-ratio", "0.5", "--mp", "1", cwd=repository)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (repository / TABLE).exists()
    assert "errRatio 0.5 and mp 1" in (repository / "build/select/tiny_untuned_fmoe/tune.log").read_text()
    monkeypatch.setenv("STAND_IN_TUNER", "fail")
    failed = run_moeshapes(*asked, cwd=repository)
    assert failed.returncode == 1
    assert "MOE535" in failed.stdout
    assert "There already: " in failed.stdout


def test_a_checkout_without_the_tuner_is_refused(repository: Path, tmp_path: Path) -> None:
    for given in ((), ("--aiter", str(tmp_path))):
        done = run_moeshapes("select", "--tune", *given, str(KERNELS), *SOURCE, cwd=repository)
        assert done.returncode == 2
        assert "--aiter DIR" in done.stderr or "has no csrc/" in done.stderr
