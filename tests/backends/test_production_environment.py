"""AITER has the environment that a use declares, reads one table while an arm is active, and is known by its commit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from moeshapes.backends.production.config import VARIABLE, served
from moeshapes.backends.production.environment import OtherEnvironmentError, adopt, environment_for
from moeshapes.backends.production.installed import UNKNOWN, aiter_version, package_folder
from process import environment

BOUND = "AITER_BF16_FP8_MOE_BOUND"


def test_what_is_declared_and_nothing_else_that_dispatch_reads() -> None:
    inherited = {
        "PATH": "/bin",
        "AITER_JIT_DIR": "/cache",
        BOUND: "64",
        "AITER_CONFIG_FMOE": "mine.csv",
        "AITER_BYPASS_TUNE_CONFIG": "1",
        "AITER_LOG_LEVEL": "ERROR",
        "MXFP4_G2_SPART": "0",
        "CU_NUM": "80",
    }
    kept = {"PATH": "/bin", "AITER_JIT_DIR": "/cache"}
    assert environment_for({}, inherited) == kept
    assert environment_for({BOUND: "0"}, inherited) == {**kept, BOUND: "0"}
    assert environment_for({"AITER_KSPLIT": "-1"}, inherited) == {**kept, "AITER_KSPLIT": "-1"}


ADOPTING = """
import json, os, sys, types
from moeshapes.backends.production.environment import OtherEnvironmentError, adopt
names = ("AITER_BF16_FP8_MOE_BOUND", "AITER_KSPLIT")
seen = []
for step in json.loads(sys.argv[1]):
    try:
        sys.modules["aiter"] = types.ModuleType("aiter") if step is None else adopt(step) or sys.modules.get("aiter")
        if sys.modules["aiter"] is None:
            del sys.modules["aiter"]
        seen.append([os.environ.get(name) for name in names])
    except OtherEnvironmentError as error:
        seen.append(str(error))
print(json.dumps(seen))
"""


def adopted(*steps: dict[str, str] | None, **inherited: str) -> list[object]:
    """What a process's environment is after each step; None stands for the import of AITER."""
    command = [sys.executable, "-c", ADOPTING, json.dumps(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment() | inherited)
    seen: list[object] = json.loads(done.stdout)
    return seen


def test_until_aiter_is_imported_the_environment_may_change() -> None:
    assert adopted({BOUND: "0"}, {}, {BOUND: "7"}, AITER_KSPLIT="2") == [["0", None], [None, None], ["7", None]]


def test_afterwards_only_the_same_one_will_do() -> None:
    first, imported, again, other = adopted({BOUND: "0"}, None, {BOUND: "0"}, {})
    assert first == imported == again == ["0", None]
    assert other == f"aiter was imported with another {BOUND}: a fresh process is needed"


def test_a_process_that_has_imported_aiter_in_another_environment_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiter", sys)
    monkeypatch.setenv("AITER_KSPLIT", "2")
    with pytest.raises(OtherEnvironmentError, match="AITER_KSPLIT"):
        adopt({})
    assert os.environ["AITER_KSPLIT"] == "2"


@pytest.mark.parametrize("before", [None, "mine.csv"])
def test_a_table_is_served_alone_in_its_folder_and_gone_afterwards(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before:
        monkeypatch.setenv(VARIABLE, before)
    else:
        monkeypatch.delenv(VARIABLE, raising=False)
    with served("a,b\n1,2\n") as path:
        assert os.environ[VARIABLE] == str(path)
        assert path.read_text() == "a,b\n1,2\n"
        assert [each.name for each in path.parent.iterdir()] == ["tuned_fmoe.csv"]
        assert path.parent.stat().st_mode & 0o77 == 0
    assert os.environ.get(VARIABLE) == before
    assert not path.parent.exists()


def test_it_is_gone_after_a_failure_too() -> None:
    with pytest.raises(ValueError, match="broken"), served("") as path:
        raise ValueError("broken")
    assert not path.parent.exists()
    assert VARIABLE not in os.environ


def package(top: Path, monkeypatch: pytest.MonkeyPatch, *files: str) -> Path:
    """A package called aiter, found first."""
    folder = top / "aiter"
    folder.mkdir(parents=True)
    for file in ("__init__.py", *files):
        (folder / file).write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(str(top))
    monkeypatch.delitem(sys.modules, "aiter", raising=False)
    return folder


def test_the_folder_is_found_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = package(tmp_path, monkeypatch, "fused_moe.py")
    assert package_folder() == folder
    assert "aiter" not in sys.modules


def test_another_package_of_that_name_is_not_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch)
    assert package_folder() is None
    assert aiter_version() == ""


def git(top: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    done = subprocess.run(["git", *identity, *arguments], cwd=top, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def checkout(top: Path) -> str:
    git(top, "init", "--quiet")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "all")
    return git(top, "rev-parse", "HEAD")


def test_a_checkout_says_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch, "fused_moe.py")
    commit = checkout(tmp_path)
    assert aiter_version() == commit


@pytest.mark.parametrize(
    ("version", "told"),
    [("0.1.9.dev55+ge4048607a5", "e4048607a5"), ("0.1.9+ge4048607a5.d20260801", "e4048607a5"), ("0.1.9", "0.1.9")],
)
def test_a_build_says_its_commit_or_its_version(
    version: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the commit of a repository that the environment happens to lie in."""
    (tmp_path / "README").write_text("of another project\n")
    package(tmp_path / "site-packages", monkeypatch, "fused_moe.py")
    checkout(tmp_path)
    monkeypatch.setattr(metadata, "version", lambda name: version)
    assert aiter_version() == told


def test_what_tells_nothing_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch, "fused_moe.py")
    assert aiter_version() == UNKNOWN
