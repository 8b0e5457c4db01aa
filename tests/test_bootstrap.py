"""Set-up: what decides that an environment is up to date, what it refuses, and that a parent's torch stays as it is."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

import pytest

import bootstrap
from checkout import copy_checkout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copied = copy_checkout(tmp_path / "checkout")
    monkeypatch.setattr(bootstrap, "ROOT", copied)
    return copied


def run_bootstrap(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", *arguments])
    return bootstrap.main()


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_input_makes_the_environment_stale(checkout: Path, name: str) -> None:
    before = bootstrap.describe(base=True)
    assert bootstrap.describe(base=True) == before
    (checkout / name).write_text((checkout / name).read_text() + "\n# changed\n")
    assert bootstrap.describe(base=True) != before


def test_the_stamp_names_interpreter_and_parent_torch(checkout: Path) -> None:
    stamp = bootstrap.describe(base=False)
    assert stamp["python"] == sys.executable
    assert stamp["version"] == ".".join(map(str, sys.version_info[:3]))
    torch = importlib.util.find_spec("torch")
    assert stamp["torch"] == (torch.origin if torch else "")


def test_an_up_to_date_environment_is_left_alone(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = checkout / ".venv"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").touch()
    (made / bootstrap.STAMP).write_text(json.dumps(bootstrap.describe(base=True)))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("something was run"))
    assert run_bootstrap(monkeypatch, "--base") == 0
    assert capsys.readouterr() == ("", "")


def test_set_ups_wait_for_each_other(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    making = threading.Event()
    monkeypatch.setattr(bootstrap, "_make", lambda *_: making.set())
    other = threading.Thread(target=bootstrap.make_ready, args=(checkout / ".venv", True))
    with bootstrap._one_at_a_time():
        other.start()
        assert not making.wait(0.1)
    other.join(timeout=10)
    assert making.is_set()


def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_bootstrap(monkeypatch, *arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("setup: ")
    assert said.count("\n") == 1
    return said


def test_an_old_python_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    assert "PYTHON=python3.11" in refusal(monkeypatch, capsys)


def test_all_missing_modules_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(monkeypatch, capsys, "--as-is", "--needs", "json", "no_such_module", "nor_this_one")
    assert "lacks no_such_module, nor_this_one:" in said
    assert run_bootstrap(monkeypatch, "--as-is", "--needs", "json") == 0


def test_a_directory_of_someone_else_is_not_overwritten(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "mine").mkdir()
    (checkout / "mine" / "thesis.txt").write_text("years of work")
    assert "is no virtual environment" in refusal(monkeypatch, capsys, "--base", "--venv", "mine")
    assert (checkout / "mine" / "thesis.txt").exists()


def test_a_python_without_venv_is_refused(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find_spec(name))
    assert "apt-get install python3-venv" in refusal(monkeypatch, capsys, "--base")


def test_a_pip_that_fails_says_what_to_do(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(checkout))
    # The pip of this interpreter: one of its own takes seconds to install.
    monkeypatch.setattr(bootstrap, "_create", lambda made: venv.create(made, system_site_packages=True, symlinks=True))
    assert run_bootstrap(monkeypatch, "--base") == 2
    assert "`make … VENV=` needs no pip" in capfd.readouterr().err.splitlines()[-1]
    assert not (checkout / ".venv" / bootstrap.STAMP).exists(), "a half-made environment must not look ready"


def test_constraints_beside_a_parent_hold_its_torch_family_exactly() -> None:
    lines = bootstrap.constraints_beside({"torch": "2.6.0+rocm6.3", "numpy": "1.26.4", "pandas": "2.2.0"}).splitlines()
    assert "torch==2.6.0+rocm6.3" in lines
    assert "numpy==1.26.4" in lines
    assert not [line for line in lines if line.startswith(("torch==2.13", "numpy==2", "triton", "pandas"))]
    assert [line for line in lines if line.startswith("ruff==")]


def write_fake_distribution(site_packages: Path, name: str, version: str, requires: str = "") -> None:
    (site_packages / name).mkdir()
    (site_packages / name / "__init__.py").write_text(f"__version__ = {version!r}\n")
    info = site_packages / f"{name}-{version}.dist-info"
    info.mkdir()
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    (info / "RECORD").touch()


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """The interpreter of a venv as a ROCm container has it: its own torch build, an editable AITER, a torch dependency
    that no registry serves."""
    venv.create(tmp_path / "parent", with_pip=False, symlinks=True)
    site_packages = next((tmp_path / "parent").glob("lib/python*/site-packages"))
    write_fake_distribution(site_packages, "torch", "2.9.9+rocm1", requires="pytorch-triton-rocm==9.9")
    write_fake_distribution(site_packages, "numpy", "1.99.0")
    (tmp_path / "aiter-source" / "aiter").mkdir(parents=True)
    (tmp_path / "aiter-source" / "aiter" / "__init__.py").touch()
    (site_packages / "aiter.pth").write_text(f"{tmp_path / 'aiter-source'}\n")
    return tmp_path / "parent" / "bin" / "python"


def said_by(python: Path, expression: str) -> str:
    command = [str(python), "-c", f"import torch, numpy, aiter, moeshapes, sys; print({expression})"]
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=python.parent, env=plain, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.registry
def test_a_parents_torch_is_neither_installed_nor_resolved_again(
    parent: Path, tmp_path: Path, can_install: None
) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    without_dev_tools(checkout / "pyproject.toml")
    bootstrap_it = [str(parent), str(checkout / "tools" / "bootstrap.py")]
    subprocess.run(bootstrap_it, check=True, capture_output=True)

    python = checkout / ".venv" / "bin" / "python"
    theirs = tmp_path / "parent"
    assert Path(said_by(python, "torch.__file__")).is_relative_to(theirs)
    assert Path(said_by(python, "numpy.__file__")).is_relative_to(theirs)
    assert Path(said_by(python, "moeshapes.__file__")).is_relative_to(checkout / "tools")
    assert said_by(python, "torch.__version__") == "2.9.9+rocm1"
    assert (Path(said_by(python, "moeshapes.__file__")).parent / "schema" / "model.schema.json").is_file()
    ours = {
        path.name.partition("-")[0].lower() for path in (checkout / ".venv").glob("lib/*/site-packages/*.dist-info")
    }
    assert "pandas" in ours
    assert not ours & {"torch", "triton", "pytorch_triton_rocm", "numpy"}

    for active in (bootstrap_it, [str(python), *bootstrap_it[1:]]):
        started = time.monotonic()
        again = subprocess.run(active, check=True, capture_output=True, text=True)
        assert (again.stdout, again.stderr) == ("", "")
        assert time.monotonic() - started < 2


def without_dev_tools(pyproject: Path) -> None:
    """Type checkers and linters take a minute to install and prove nothing about torch."""
    pyproject.write_text(re.sub(r"(?ms)^dev = \[.*?^\]", "dev = []", pyproject.read_text()))
