from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from moeshapes.collision import ACTIVATION_IGNORED, COLLISION
from moeshapes.findings import render
from moeshapes.keys import check_keys
from moeshapes.row import UNTUNED_COLUMNS
from process import environment
from table_text import line, text, untuned_line, write

CASES = sorted(path for path in (Path(__file__).parent / "examples" / "tables" / "keys").iterdir() if path.is_dir())
GENERAL = Path("aiter") / "configs" / "tuned_fmoe.csv"


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_examples(case: Path) -> None:
    found = render(check_keys(case).findings, "text")
    assert found == (case / "expected.txt").read_text("utf-8").removesuffix("\n")
    assert bool(found) != case.name.startswith("clean-")


def test_a_repository_without_tables_has_no_findings(tmp_path: Path) -> None:
    result = check_keys(tmp_path)
    assert (result.findings, result.rows, result.tables) == ((), 0, 0)


def test_a_crowd_of_untuned_rows_has_no_endless_finding(tmp_path: Path) -> None:
    path = tmp_path / "aiter" / "configs" / "untuned_fmoe.csv"
    write(path, text(*[untuned_line()] * 2000, header=UNTUNED_COLUMNS))
    found = check_keys(tmp_path).findings
    assert len(found) == 2000
    assert max(len(finding.message) for finding in found) < 500
    assert found[-1].message.endswith("untuned_fmoe.csv:9 and 1991 more")


@pytest.fixture
def checkout(tmp_path: Path, aiter_configs: Path) -> Path:
    """A checkout of AITER that may be changed."""
    shutil.copytree(aiter_configs, tmp_path / "aiter" / "configs")
    return tmp_path


def test_aiters_tables_have_rows_that_hide_others_and_no_collisions(checkout: Path) -> None:
    """AITER itself counts as many rows when it leaves act_type out of its keys."""
    result = check_keys(checkout)
    assert Counter(finding.rule for finding in result.findings) == {ACTIVATION_IGNORED: 449}
    assert (result.rows, result.tables) == (2402, 31)


@pytest.mark.parametrize("source", ["kimik3_a8w4", "dsv4_fp8fp4", "minimax_m25_fp4", "glm47_fp8"])
def test_a_planted_duplicate_is_found_in_aiters_tables(checkout: Path, source: str) -> None:
    models = checkout / "aiter" / "configs" / "model_configs"
    header, *rows = (models / f"{source}_tuned_fmoe.csv").read_text().splitlines()
    write(models / "planted_tuned_fmoe.csv", f"{header}\n{rows[7]}\n".encode())
    found = [finding for finding in check_keys(checkout).findings if finding.rule is COLLISION]
    assert {(finding.place.file.rpartition("/")[2], finding.place.line) for finding in found} == {
        ("planted_tuned_fmoe.csv", 2),
        (f"{source}_tuned_fmoe.csv", 9),
    }


def test_no_heavy_module_is_imported(tmp_path: Path) -> None:
    write(tmp_path / GENERAL, text(line(), line()))
    program = (
        "import sys; from pathlib import Path; from moeshapes.keys import check_keys; "
        "assert check_keys(Path(sys.argv[1])).findings; "
        "print(sorted({'torch', 'pandas', 'numpy', 'jsonschema', 'yaml', 'difflib'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, env=environment()
    )
    assert run.stdout.strip() == "[]"
