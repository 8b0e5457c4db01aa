"""Every command's JSON has text from outside as it is, and no workflow command in what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from machines import ready
from moeshapes.commands import doctor
from moeshapes.doctor.cards import Card
from process import run_moeshapes
from small_repository import tuned_line, write_small_repository
from table_text import text, write

HOSTILE = "##[add-mask]e"
NAMED = f"{HOSTILE}_tuned_fmoe.csv"
KEY = "gfx950,256,8,256,256,8,2,Silu,bf16,fp4x2,fp4x2,per_1x32,1,0"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One whose row has the command in a cell; beside it, the same row in a table of that name."""
    write(tmp_path / "tables" / NAMED, text(tuned_line(8)))
    root = write_small_repository(tmp_path / "repository", tuned_line(8, _tag=HOSTILE))
    assert run_moeshapes("generate", cwd=root).returncode == 0
    return root


def command(*arguments: str) -> Callable[[Path], CompletedProcess[str]]:
    return lambda root: run_moeshapes(*arguments, "--format", "json", cwd=root)


def damaged(root: Path) -> Path:
    """A table of that name with a fault."""
    return write(root.parent / "damaged" / NAMED, text(tuned_line(8, us="0"), "gfx950,256,9"))


def explain(root: Path) -> CompletedProcess[str]:
    return command("explain", KEY, "--tuned", str(root.parent / "tables" / NAMED))(root)


def coverage(root: Path) -> CompletedProcess[str]:
    return command("coverage", "--tuned", str(root.parent / "tables" / NAMED))(root)


def lint(root: Path) -> CompletedProcess[str]:
    return command("lint", str(damaged(root)))(root)


def export(root: Path) -> CompletedProcess[str]:
    configs = root.parent / "checkout" / "aiter" / "configs"
    (configs / "model_configs").mkdir(parents=True)
    return command("export", "--aiter", str(configs), "--dry-run")(root)


def parity(root: Path) -> CompletedProcess[str]:
    configs = root.parent / "checkout" / "aiter" / "configs"
    ours = root / "generated/aiter/configs/model_configs/tiny_untuned_fmoe.csv"
    write(configs / "model_configs" / f"{HOSTILE}_untuned_fmoe.csv", ours.read_bytes())
    return command("parity", "--aiter", str(configs))(root)


def import_(root: Path) -> CompletedProcess[str]:
    return command("import", str(damaged(root)))(root)


def verify(root: Path) -> CompletedProcess[str]:
    pytest.importorskip("torch")
    return command("verify", str(root.parent / "tables" / NAMED), "--backend", "emulate")(root)


@pytest.mark.parametrize("run", [explain, coverage, lint, export, parity, import_, verify])
def test_text_from_outside_is_no_command(run: Callable[[Path], CompletedProcess[str]], repository: Path) -> None:
    done = run(repository)
    assert HOSTILE in json.dumps(json.loads(done.stdout)), done.stdout + done.stderr
    assert "##[" not in done.stdout + done.stderr


def test_a_boards_name_is_no_command(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "look", lambda: ready(cards=(Card("gfx950", 256, HOSTILE),)))
    done = command("doctor", "--no-trial")(repository)
    assert json.loads(done.stdout)["cards"][0]["board"] == HOSTILE
    assert "##[" not in done.stdout
