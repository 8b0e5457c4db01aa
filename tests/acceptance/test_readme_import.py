"""The README's way from a config.json to rows, done as written, and what it shows of parity."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path

import pytest

from process import run_moeshapes

SHAPE = "shapes/qwen3-coder-480b-a35b-instruct/tp8.yaml"


@pytest.fixture
def section(root: Path) -> str:
    return (root / "README.md").read_text().partition("## Start from what is there")[2].partition("\n## ")[0]


def shown(section: str, command: str) -> str:
    block = re.search(rf"   ```console\n   \$ {re.escape(command)}\n(.*?)   ```", section, re.DOTALL)
    assert block, f"the README does not show `{command}`"
    return textwrap.dedent(block[1])


def test_a_model_comes_from_its_config_as_the_readme_says(section: str, root: Path, tmp_path: Path) -> None:
    for folder in ("models", "shapes", "generated"):
        shutil.copytree(root / folder, tmp_path / folder)
    shutil.copy(root / "tests" / "examples" / "configs" / "qwen3.json", tmp_path / "config.json")
    command = "import config.json --checkpoint Qwen/Qwen3-Coder-480B-A35B-Instruct --output ."
    done = run_moeshapes(*command.split(), cwd=tmp_path)
    assert done.stderr.startswith(shown(section, f"moeshapes {command}"))

    yaml = re.search(r"   ```yaml\n(.*?)   ```", section, re.DOTALL)
    assert yaml
    text = textwrap.dedent(yaml[1])
    assert len(text.splitlines()) <= 15
    shape = tmp_path / SHAPE
    shape.parent.mkdir()
    shape.write_text(re.sub(r"pad:.*\n", "", text))
    assert shown(section, "moeshapes check") in run_moeshapes("check", cwd=tmp_path).stdout

    shape.write_text(text)
    generated = run_moeshapes("generate", cwd=tmp_path)
    wrote = re.search(r"   (wrote generated/\S+\n)", section)
    assert wrote
    assert generated.stderr.startswith(wrote[1])
    assert run_moeshapes("check", cwd=tmp_path).returncode == 0


def test_parity_ends_as_the_readme_says(section: str, root: Path, aiter_configs: Path) -> None:
    done = run_moeshapes("parity", "--aiter", str(aiter_configs), cwd=root)
    assert done.stdout.endswith(shown(section, "moeshapes parity --aiter DIR"))
