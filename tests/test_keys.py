from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.findings import render
from moeshapes.keys import check_keys, find_collisions
from moeshapes.row import UNTUNED_COLUMNS
from process import environment
from table_text import line, table, text, write

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


def test_a_column_that_all_tables_lack_is_no_part_of_the_key() -> None:
    header = (*UNTUNED_COLUMNS, "cu_num", "us", "kernelName1", "kernelName2")
    assert len(find_collisions([table(line(header), line(header), header=header)])) == 2


def test_a_table_without_tag_has_another_tag_than_an_empty_one() -> None:
    """AITER fills an absent column with 0, the empty cell stays empty: its merge keeps both rows."""
    tagless = tuple(column for column in table(line()).header if column != "_tag")
    assert find_collisions([table(line()), table(line(tagless), header=tagless)]) == []


@given(st.lists(st.sampled_from(["8", "16", "8.0", " 8"]), max_size=6))
def test_every_row_that_shares_a_key_is_named_once(tokens: list[str]) -> None:
    values = [int(float(token)) for token in tokens]
    expected = [number for number, value in enumerate(values, 2) if values.count(value) > 1]
    found = find_collisions([table(*(line(token=token) for token in tokens))])
    assert sorted(finding.place.line for finding in found) == expected


@pytest.fixture
def checkout(tmp_path: Path, aiter_configs: Path) -> Path:
    """A checkout of AITER that may be changed."""
    shutil.copytree(aiter_configs, tmp_path / "aiter" / "configs")
    return tmp_path


def test_aiters_tables_are_free_of_collisions(checkout: Path) -> None:
    result = check_keys(checkout)
    assert (result.findings, result.rows, result.tables) == ((), 2402, 31)


@pytest.mark.parametrize("source", ["kimik3_a8w4", "dsv4_fp8fp4", "minimax_m25_fp4", "glm47_fp8"])
def test_a_planted_duplicate_is_found_in_aiters_tables(checkout: Path, source: str) -> None:
    models = checkout / "aiter" / "configs" / "model_configs"
    header, *rows = (models / f"{source}_tuned_fmoe.csv").read_text().splitlines()
    write(models / "planted_tuned_fmoe.csv", f"{header}\n{rows[7]}\n".encode())
    found = check_keys(checkout).findings
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
