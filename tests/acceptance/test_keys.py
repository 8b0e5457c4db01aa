"""`moeshapes keys` as it is run: over AITER's tables, against branches, mending."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from branches import A, B, repository
from process import run_moeshapes
from table_text import line, text, write


@pytest.fixture
def checkout(tmp_path: Path, aiter_configs: Path) -> Path:
    """An AITER checkout that may be changed."""
    shutil.copytree(aiter_configs, tmp_path / "aiter" / "aiter" / "configs")
    return tmp_path / "aiter"


def fingerprint(folder: Path) -> dict[str, tuple[str, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns) for path in files}


def ours(tmp_path: Path, name: str, *lines: str) -> Path:
    for folder in ("models", "shapes"):
        (tmp_path / "ours" / folder).mkdir(parents=True, exist_ok=True)
    write(tmp_path / "ours" / "generated" / "aiter" / "configs" / "model_configs" / name, text(*lines))
    return tmp_path / "ours"


def test_over_aiters_published_tables(root: Path, aiter_configs: Path) -> None:
    before = fingerprint(aiter_configs)
    done = run_moeshapes("keys", "--aiter", str(aiter_configs), cwd=root)
    assert done.returncode == 0
    assert " error " not in done.stdout
    assert done.stdout.count(" warning MOE203 ") == 449
    assert re.search(r"; 24\d\d rows merged with AITER's: \d+ new, 0 replaced, 1 unchanged\n$", done.stderr)
    assert fingerprint(aiter_configs) == before


def test_a_row_of_ours_that_stands_in_another_table_of_aiters(tmp_path: Path, checkout: Path) -> None:
    table = checkout / "aiter" / "configs" / "model_configs" / "glm5_fp4_tuned_fmoe.csv"
    header, row = table.read_text().splitlines()[:2]
    write(ours(tmp_path, "mine_tuned_fmoe.csv") / B, f"{header}\n{row}\n".encode())
    before = fingerprint(checkout)
    done = run_moeshapes("keys", "--aiter", str(checkout), "--format", "json", cwd=tmp_path / "ours")
    assert done.returncode == 1
    found = [finding for finding in json.loads(done.stdout) if finding["rule"] == "MOE201"]
    assert {(Path(finding["file"]).name, finding["line"]) for finding in found} == {(Path(B).name, 2), (table.name, 2)}
    assert all("AITER would keep" in finding["message"] for finding in found)
    assert all("--fix" not in finding["remedy"] for finding in found)
    assert fingerprint(checkout) == before


def test_against_branches(tmp_path: Path) -> None:
    rows = {A: [line(token="16")]}
    repository(tmp_path, rows, one={A: [*rows[A], line(us="100")]}, two={**rows, B: [line(us="90")]})
    for against in (["one"], ["two"], ["one", "one"]):
        assert run_moeshapes("keys", *(f"--against={ref}" for ref in against), cwd=tmp_path).returncode == 0
    done = run_moeshapes("keys", "--against", "one", "--against", "two", cwd=tmp_path)
    assert done.returncode == 1
    assert f"one:{A}:3: error MOE201 with `one` and `two` merged, " in done.stdout
    assert f"two:{B}:2: error MOE201 with `one` and `two` merged, " in done.stdout
    assert done.stderr == "moeshapes keys: 2 errors, 1 tuned row in 1 table; merged with one, two\n"


def test_against_branches_over_aiters_tables(tmp_path: Path, checkout: Path) -> None:
    table = checkout / "aiter" / "configs" / "model_configs" / "glm5_fp4_tuned_fmoe.csv"
    row = table.read_text().splitlines()[1]
    root = tmp_path / "ours"
    root.mkdir()
    repository(root, {A: [line(token="16")]}, one={A: [line(token="16")], B: [row]})
    assert run_moeshapes("keys", "--aiter", str(checkout), cwd=root).returncode == 0
    done = run_moeshapes("keys", "--aiter", str(checkout), "--against", "one", cwd=root)
    assert done.returncode == 1
    assert f"one:{B}:2: error MOE201 with `one` merged, " in done.stdout


@pytest.mark.parametrize("ref", ["--upload-pack=touch pwned", "-x", "absent", "main..one", "", "a\nb", "main:models"])
def test_a_ref_that_names_no_commit_cannot_be_run(tmp_path: Path, ref: str) -> None:
    repository(tmp_path, {A: [line()]})
    done = run_moeshapes("keys", f"--against={ref}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "pwned").exists()


def test_against_needs_a_git_repository(tmp_path: Path) -> None:
    done = run_moeshapes("keys", "--against", "main", cwd=ours(tmp_path, "a_tuned_fmoe.csv", line()))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "not a git repository" in done.stderr


def test_fix_removes_what_times_can_decide_and_says_what_it_left(tmp_path: Path) -> None:
    undecided = [line(token="16"), line(token="16", us2="0", us="40")]
    root = ours(tmp_path, "a_tuned_fmoe.csv", line(us="100"), *undecided, line(us="90"))
    write(root / B, text(line(token="32")))
    untouched = fingerprint(root / "generated")[str(root / B)]
    assert run_moeshapes("keys", cwd=root).returncode == 1
    done = run_moeshapes("keys", "--fix", cwd=root)
    assert done.returncode == 1
    assert done.stdout.startswith(f"removed {A}:2 (100 µs, ")
    assert "; kept " in done.stdout.splitlines()[0]
    assert done.stdout.splitlines()[0].endswith("): its time is the lowest")
    assert done.stdout.count(" MOE201 ") == done.stdout.count("`keys --fix` leaves them alone") == 2
    assert fingerprint(root / "generated")[str(root / B)] == untouched
    assert "100" not in (root / A).read_text().splitlines()[1]


def test_fix_writes_to_one_tree_alone(tmp_path: Path) -> None:
    root = ours(tmp_path, "a_tuned_fmoe.csv", line(), line())
    before = fingerprint(root)
    for other in (("--aiter", str(root / "generated" / "aiter" / "configs")), ("--against", "main")):
        assert run_moeshapes("keys", "--fix", *other, cwd=root).returncode == 2
    assert fingerprint(root) == before


def test_aiter_that_is_none(root: Path, tmp_path: Path) -> None:
    done = run_moeshapes("keys", "--aiter", str(tmp_path), cwd=root)
    assert done.returncode == 2
    assert "is no AITER checkout" in done.stderr


def test_annotations_name_the_working_trees_file_and_line(tmp_path: Path) -> None:
    repository(tmp_path, {A: [line(token="16"), line(us="100")]}, two={A: [line(token="16")], B: [line(us="90")]})
    write(tmp_path / A, text(line(token="16"), line(us="100"), line(token="1")))
    done = run_moeshapes("keys", "--against", "two", "--format", "github", cwd=tmp_path)
    assert done.returncode == 0
    write(tmp_path / A, text(line(token="16"), line(us="101")))
    done = run_moeshapes("keys", "--against", "two", "--format", "github", cwd=tmp_path)
    assert f"::warning file={A},line=3,title=MOE206::" in done.stdout
