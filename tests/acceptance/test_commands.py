"""Commands as people run them, in a repository with faults and in one without."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from process import run_moeshapes, run_python

HEAVY = {"torch", "pandas", "numpy"}


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Path:
    """A copy of what this repository declares and ships, to plant faults in."""
    for folder in ("models", "shapes", "generated"):
        shutil.copytree(root / folder, tmp_path / folder)
    return tmp_path


def untuned_files(repository: Path) -> list[Path]:
    return sorted((repository / "generated").rglob("*untuned_fmoe*.csv"))


@pytest.mark.parametrize("command", [("check",), ("generate", "--check"), ("keys",), ("lint",)])
def test_this_repository_has_no_errors(root: Path, command: tuple[str, ...]) -> None:
    done = run_python("-m", "moeshapes", *command, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr.startswith(f"moeshapes {command[0]}: ")


def test_generate_mends_what_its_check_finds(repository: Path) -> None:
    stale, missing, *_ = untuned_files(repository)
    whole = {path: path.read_bytes() for path in untuned_files(repository)}
    stale.write_bytes(stale.read_bytes().replace(b"\n1,", b"\n3,", 1))
    missing.unlink()
    surplus = stale.with_name("nobody_untuned_fmoe.csv")
    shutil.copy(stale, surplus)

    found = run_moeshapes("generate", "--check", "--format", "json", cwd=repository)
    assert found.returncode == 1
    files = {finding["file"] for finding in json.loads(found.stdout)}
    assert files == {path.relative_to(repository).as_posix() for path in (stale, missing, surplus)}

    assert run_moeshapes("generate", cwd=repository).returncode == 0
    assert {path: path.read_bytes() for path in untuned_files(repository)} == whole
    assert run_moeshapes("generate", "--check", cwd=repository / "models").returncode == 0


def test_check_shows_declaration_table_and_key_faults_together(repository: Path) -> None:
    model = repository / "models" / "glm-5.2.yaml"
    model.write_text(model.read_text().replace("hidden_size:", "hiden_size:", 1))
    tuned = repository / "generated" / "aiter" / "configs" / "model_configs" / "broken_tuned_fmoe.csv"
    tuned.write_text("<<<<<<< HEAD\n")
    done = run_moeshapes("check", cwd=repository)
    assert done.returncode == 1
    assert "models/glm-5.2.yaml:" in done.stdout
    assert "hidden_size" in done.stdout
    assert "broken_tuned_fmoe.csv" in done.stdout
    assert "Traceback" not in done.stderr


def test_github_annotations_name_file_and_line(repository: Path) -> None:
    model = repository / "models" / "glm-5.2.yaml"
    model.write_text(model.read_text().replace("hidden_size:", "hiden_size:", 1))
    done = run_moeshapes("check", "--format", "github", cwd=repository)
    assert "::error file=models/glm-5.2.yaml,line=" in done.stdout


def test_adopt_brings_in_the_chosen_row_once(repository: Path, aiter_configs: Path) -> None:
    source = aiter_configs / "model_configs" / "glm5_fp4_tuned_fmoe.csv"
    target = repository / "generated" / "aiter" / "configs" / "model_configs" / source.name
    target.unlink(missing_ok=True)
    adopt = ("adopt", str(source), "--source", "AITER's own table", "--rows", "token=8,inter_dim=512")
    first = run_moeshapes(*adopt, cwd=repository)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("Adopt 1 tuned row from glm5_fp4_tuned_fmoe.csv\n\nSource: AITER's own table\n")
    assert ": warning MOE161 " in first.stderr
    assert "warning MOE" not in first.stdout  # it is a commit message
    written = target.read_bytes()
    assert len(written.splitlines()) == 2

    target.unlink()
    found = json.loads(run_moeshapes(*adopt, "--format", "json", cwd=repository).stdout)
    assert [finding["rule"] for finding in found] == ["MOE161"]

    again = run_moeshapes(*adopt, cwd=repository)
    assert again.stderr.endswith("no findings, 0 tables written\n")
    assert target.read_bytes() == written
    assert run_moeshapes("check", cwd=repository).returncode == 0


def test_adopt_refuses_what_no_shape_declares(repository: Path, aiter_configs: Path) -> None:
    source = aiter_configs / "model_configs" / "dsv3_fp4_tuned_fmoe.csv"
    done = run_moeshapes("adopt", str(source), "--source", "x", "--rows", "expert=64", cwd=repository)
    assert done.returncode == 1
    assert "no shape declares" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "example"),
    [
        (("adopt", "a.csv"), "--source "),
        (("parity",), "--aiter ../aiter"),
        (("export",), "--aiter ../aiter"),
        (("lint", "a.csv", "--aiter-of", "yesterday"), "YYYY-MM-DD"),
    ],
)
def test_what_is_missing_or_malformed_is_shown_by_an_example(
    root: Path, tmp_path: Path, arguments: tuple[str, ...], example: str
) -> None:
    (tmp_path / "a.csv").touch()
    rooted = () if arguments[0] == "lint" else ("--root", str(root))
    done = run_moeshapes(*arguments, *rooted, cwd=tmp_path)
    assert done.returncode == 2
    assert example in done.stderr


def test_lint_of_a_file_needs_no_repository(tmp_path: Path, aiter_configs: Path) -> None:
    done = run_moeshapes("lint", str(aiter_configs / "tuned_fmoe.csv"), cwd=tmp_path)
    assert done.returncode in (0, 1)
    assert " readable rows in 1 table" in done.stderr
    assert run_moeshapes("lint", cwd=tmp_path).returncode == 2
    assert run_moeshapes("lint", "absent.csv", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        (["check"], HEAVY),
        (["lint"], HEAVY),
        (["generate", "--check"], HEAVY),
        (["keys"], HEAVY | {"jsonschema", "yaml"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_heavy_modules_stay_unimported(root: Path, command: list[str], unwanted: set[str]) -> None:
    code = (
        f"import sys; from moeshapes.cli import status_of; assert status_of({command!r}) == 0; "
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = run_python("-c", code, cwd=root)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.splitlines()[-1].split())
    assert "moeshapes" in imported
    assert not imported & unwanted


def test_a_report_that_is_damaged_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    for name in ("models", "shapes", "build"):
        (tmp_path / name).mkdir()
    (tmp_path / "build" / "verify.md").write_bytes(b"### moeshapes verify \xff")
    done = run_moeshapes("report", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("### moeshapes verify ")


@pytest.mark.parametrize(
    ("file", "said", "status"),
    [
        ("b_tuned_fmoe.csv", "without what these faults keep from being read:\nb_tuned_fmoe.csv:1: error MOE105 ", 0),
        ("passwd", "passwd is no tuned table, by its name and its columns", 2),
    ],
)
def test_what_coverage_is_shown_without_is_said(tmp_path: Path, file: str, said: str, status: int) -> None:
    for name in ("models", "shapes"):
        (tmp_path / name).mkdir()
    (tmp_path / file).write_text("root:x:0:0:root:/root:/bin/bash\n")
    done = run_moeshapes("coverage", "--tuned", file, cwd=tmp_path)
    assert said in done.stderr
    assert done.returncode == status
