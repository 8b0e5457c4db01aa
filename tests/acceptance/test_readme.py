"""The README's walk-through, done as written: its YAML, its commands and what they print."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path

import pytest

from process import run_moeshapes

MISTAKES = {"tp: 4": "tp: 5", "fp8_token\n": "fp8_tokens\n", "8, 16]": "8, 12]"}


@pytest.fixture
def walk_through(root: Path) -> str:
    return (root / "README.md").read_text().partition("## Add a model")[2].partition("\n## ")[0]


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Path:
    for folder in ("models", "shapes", "generated"):
        shutil.copytree(root / folder, tmp_path / "ours" / folder)
    return tmp_path / "ours"


def yaml_files(text: str) -> dict[str, str]:
    """Path and content of each YAML block that the text introduces by its path."""
    blocks = re.findall(r"`((?:models|shapes)/\S+\.yaml)`:\n\n   ```yaml\n(.*?)   ```", text, re.DOTALL)
    return {path: textwrap.dedent(content) for path, content in blocks}


def printed_by(text: str, command: str) -> str:
    block = re.search(rf"   ```console\n   \$ {re.escape(command)}\n(.*?)   ```", text, re.DOTALL)
    assert block, f"the README does not show `{command}`"
    return textwrap.dedent(block[1])


def test_a_model_is_added_as_the_readme_says(walk_through: str, repository: Path) -> None:
    files = yaml_files(walk_through)
    assert len(files) == 2
    for path, content in files.items():
        (repository / path).parent.mkdir(exist_ok=True)
        (repository / path).write_text(content)

    shape = repository / list(files)[1]
    faulty = shape.read_text()
    for right, wrong in MISTAKES.items():
        assert right in faulty
        faulty = faulty.replace(right, wrong)
    sound = shape.read_text()
    shape.write_text(faulty)
    assert run_moeshapes("check", cwd=repository).stdout == printed_by(walk_through, "moeshapes check")

    shape.write_text(sound)
    generated = run_moeshapes("generate", cwd=repository)
    assert generated.stderr.startswith(printed_by(walk_through, "moeshapes generate"))
    untuned = next((repository / "generated").rglob("qwen3_30b_fp8_untuned_fmoe.csv"))
    shown = re.search(r"   ```csv\n(.*?)   ```", walk_through, re.DOTALL)
    assert shown
    assert untuned.read_text().startswith(textwrap.dedent(shown[1]))
    assert run_moeshapes("check", cwd=repository).returncode == 0


def test_a_row_is_adopted_as_the_readme_says(walk_through: str, repository: Path, aiter_configs: Path) -> None:
    name = "glm5_fp4_tuned_fmoe.csv"
    tables = "../aiter/aiter/configs/model_configs"
    shutil.copytree(aiter_configs / "model_configs", repository / tables)
    options = ("--source", "table of AITER e4048607a5", "--rows", "token=4,inter_dim=512")
    command = f'moeshapes adopt {tables}/{name} --source "{options[1]}" --rows {options[3]}'
    assert run_moeshapes("adopt", f"{tables}/{name}", *options, cwd=repository).stdout == printed_by(
        walk_through, command
    )
