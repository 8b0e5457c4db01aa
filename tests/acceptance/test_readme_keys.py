"""What the README says of keys, done as written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from branches import git
from process import run_moeshapes

TUNED = "generated/aiter/configs/model_configs/glm5_fp4_tuned_fmoe.csv"
GENERAL = "generated/aiter/configs/tuned_fmoe.csv"


@pytest.fixture
def shown(root: Path) -> dict[str, str]:
    """What each command of the README's section is shown to print."""
    section = (root / "README.md").read_text().partition("## Keys of more than one tree")[2].partition("\n## ")[0]
    return dict(re.findall(r"```console\n\$ (moeshapes keys.*?)\n(.*?)```", section, re.DOTALL))


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Path:
    """This repository before its first tuned row of AITER's, and two branches that each bring it in."""
    for folder in ("models", "shapes", "generated"):
        shutil.copytree(root / folder, tmp_path / folder)
    for tuned in (tmp_path / "generated" / "aiter").rglob("*.csv"):
        if "untuned" not in tuned.name:
            tuned.unlink()
    git(tmp_path, "init", "--quiet")
    for branch, file, us in (("main", "", ""), ("pr-1", TUNED, "68.581"), ("pr-2", GENERAL, "70.104")):
        git(tmp_path, "checkout", "--quiet", "-b" if branch != "main" else "-B", branch, *(["main"] if file else []))
        if file:
            header, *rows = (root / TUNED).read_text().splitlines()
            row = next(row for row in rows if row.startswith("gfx950,256,8,6144,512,257,9,"))
            (tmp_path / file).write_text(f"{header}\n{row.replace('68.581', us)}\n")
        git(tmp_path, "add", "--all")
        git(tmp_path, "commit", "--quiet", "--message", branch)
    git(tmp_path, "checkout", "--quiet", "main")
    return tmp_path


def test_two_branches_collide_as_the_readme_says(shown: dict[str, str], repository: Path) -> None:
    command = "moeshapes keys --against pr-1 --against pr-2"
    done = run_moeshapes(*command.split()[1:], cwd=repository)
    assert done.stdout + done.stderr == shown[command]


def test_aiters_family_is_counted_as_the_readme_says(
    shown: dict[str, str], repository: Path, aiter_configs: Path
) -> None:
    git(repository, "checkout", "--quiet", "pr-1")
    done = run_moeshapes("keys", "--aiter", str(aiter_configs), cwd=repository)
    assert done.stderr == shown["moeshapes keys --aiter ../aiter > warnings.txt"]
