"""Packaging and make: the schemas travel with every kind of installation, and the targets do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from checkout import copy_checkout
from process import environment, run_python

LIST_SCHEMAS = (
    "from importlib.resources import files; import moeshapes.cli; "
    "print(*sorted(f.name for f in (files('moeshapes') / 'schema').iterdir()))"
)


def schemas_of(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "schema").glob("*.json"))


def last_line_of(code: str, cwd: Path) -> str:
    done = run_python("-c", code, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def built(checkout: Path, kind: str, to: Path) -> Path:
    """Builds a `wheel` or an `sdist` with the setuptools at hand, so that no registry is needed."""
    to.mkdir(exist_ok=True)
    call = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(to)!r}))"
    return to / last_line_of(call, cwd=checkout)


@pytest.mark.parametrize("through_sdist", [False, True], ids=["wheel", "sdist then wheel"])
def test_the_wheel_carries_the_schemas(tmp_path: Path, root: Path, through_sdist: bool) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="the dev extra has setuptools to build with")
    source = copy_checkout(tmp_path / "checkout")
    if through_sdist:
        sdist = built(source, "sdist", tmp_path)
        subprocess.run(["tar", "-xf", sdist], cwd=tmp_path, check=True)
        source = tmp_path / sdist.name.removesuffix(".tar.gz")
    wheel = built(source, "wheel", tmp_path / "out")
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"moeshapes"}
    assert schemas_of(root)
    import_it = f"import sys; sys.path.insert(0, {str(installed)!r}); {LIST_SCHEMAS}"
    assert last_line_of(import_it, cwd=tmp_path).split() == schemas_of(root)


def test_this_installation_finds_the_schemas(root: Path) -> None:
    assert last_line_of(LIST_SCHEMAS, cwd=root / "tools").split() == schemas_of(root)


def make(root: Path, *arguments: str) -> str:
    command = ["make", *arguments]
    return subprocess.run(command, cwd=root, env=environment(), check=True, capture_output=True, text=True).stdout


def test_help_lists_every_target(root: Path) -> None:
    declared = re.findall(r"^\.PHONY: (.+)$", (root / "Makefile").read_text(), re.MULTILINE)[0].split()
    assert re.findall(r"^  make (\S+)", make(root, "help"), re.MULTILINE) == declared


def test_clean_never_touches_generated(tmp_path: Path, root: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    (checkout / "tests").mkdir()
    for kept in ("generated/aiter/tuned.csv", "generated/records/build/one.json"):
        (checkout / kept).parent.mkdir(parents=True, exist_ok=True)
        (checkout / kept).touch()
    (checkout / "build").mkdir()
    (checkout / "build" / "emulated.json").touch()
    make(checkout, "clean")
    assert not (checkout / "build").exists()
    assert len(list((checkout / "generated").rglob("*.*"))) == 2


def test_without_a_venv_the_current_interpreter_runs_from_tools(root: Path) -> None:
    dry = make(root, "--dry-run", "generate", "VENV=", f"PYTHON={sys.executable}")
    assert "--as-is" in dry
    assert ".venv" not in dry.replace(sys.executable, "")
    assert f'PYTHONPATH="{root}/tools${{PYTHONPATH:+:$PYTHONPATH}}" {sys.executable} -m moeshapes generate' in dry


def test_the_variables_reach_the_command(root: Path) -> None:
    dry = make(root, "--dry-run", "verify", "FRESH=1", "TUNED=rows.csv", "BACKEND=emulate")
    assert "-m moeshapes verify --fresh --backend emulate" in dry
    assert dry.rstrip().endswith("rows.csv")


@pytest.mark.parametrize(
    ("setting", "shared"), [("VENV=.venv", True), ("VENV= PYTHON=true", True), ("VENV= PYTHON=false", False)]
)
def test_tests_share_the_cores_where_xdist_is_installed(root: Path, setting: str, shared: bool) -> None:
    """`true` and `false` stand in for interpreters that can and cannot import it."""
    assert ("--numprocesses=auto" in make(root, "--dry-run", "test", *setting.split())) is shared
