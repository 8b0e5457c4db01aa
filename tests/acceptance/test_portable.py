"""The way of rows of the portable kernels from YAML to a table, as people go it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from process import run_moeshapes
from small_repository import PORTABLE_TABLE, TABLE, portable_line, tuned_line, write_both_backends
from table_text import text, write

UNTUNED = "generated/triton/triton_tiny_untuned_fmoe.csv"
ON_AMD = {"gfx": "gfx950", "cu_num": "256"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One problem for AITER's table and for the portable kernels, with derived files that are fresh."""
    root = write_both_backends(tmp_path / "ours")
    done = run_moeshapes("generate", cwd=root)
    assert (done.returncode, f"wrote {UNTUNED}\n" in done.stderr) == (0, True)
    return root


def adopted(root: Path, *lines: str) -> None:
    source = write(root.parent / "measured_tuned_fmoe.csv", text(*lines))
    done = run_moeshapes("adopt", str(source), "--source", "an H200", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rows_come_in_are_checked_explained_and_counted(repository: Path) -> None:
    adopted(repository, portable_line(8), tuned_line(8), portable_line(8, **ON_AMD))
    assert (repository / PORTABLE_TABLE).read_bytes() == text(portable_line(8, **ON_AMD), portable_line(8))
    assert (repository / TABLE).read_bytes() == text(tuned_line(8))
    checked = run_moeshapes("check", cwd=repository)
    assert (checked.returncode, " error " in checked.stdout) == (0, False), checked.stdout

    explained = run_moeshapes("explain", "tiny/tp2-triton", "--tokens", "5", cwd=repository)
    assert explained.returncode == 0, explained.stderr
    for words in (
        "AITER does not run on sm_90; the key is looked up in generated/triton alone",
        f"{PORTABLE_TABLE}:3: recorded 60.75 µs",
        f"{PORTABLE_TABLE}:2: recorded 60.75 µs",
        "record       none",
        "as the row names them, block_m 16",
    ):
        assert words in explained.stdout
    found = json.loads(run_moeshapes("coverage", "--format", "json", cwd=repository).stdout)
    assert {
        (each["deployment"], each["gfx"]): [bucket["bucket"] for bucket in each["buckets"] if bucket["row"]]
        for each in found["deployments"]
    } == {("tiny/tp2", "gfx950"): [8], ("tiny/tp2-triton", "gfx950"): [8], ("tiny/tp2-triton", "sm_90"): [8]}


def test_a_key_that_two_rows_have_is_found_and_mended(repository: Path) -> None:
    slower = portable_line(8, us1="50.5", us="70.75")
    write(repository / PORTABLE_TABLE, text(portable_line(8), slower))
    done = run_moeshapes("keys", cwd=repository)
    assert done.returncode == 1
    assert "AITER" not in done.stdout
    assert run_moeshapes("keys", "--fix", cwd=repository).returncode == 0
    assert (repository / PORTABLE_TABLE).read_bytes() == text(portable_line(8))


def test_aiters_checkout_gets_none_of_it(repository: Path, tmp_path: Path) -> None:
    adopted(repository, portable_line(8), portable_line(8, **ON_AMD))
    checkout = tmp_path / "aiter"
    (checkout / "aiter/configs/model_configs").mkdir(parents=True)
    exported = run_moeshapes("export", "--aiter", str(checkout), cwd=repository)
    assert exported.returncode == 0, exported.stdout + exported.stderr
    assert [path.name for path in checkout.rglob("*.csv")] == ["tiny_untuned_fmoe.csv"]
    compared = run_moeshapes("parity", "--aiter", str(checkout), cwd=repository)
    assert (compared.returncode, "triton" in compared.stdout) == (0, False), compared.stdout


def test_aiters_tables_answer_for_no_portable_shape(repository: Path, tmp_path: Path) -> None:
    configs = write(tmp_path / "aiter/aiter/configs/tuned_fmoe.csv", text(tuned_line(8))).parent
    done = run_moeshapes("explain", "tiny/tp2-triton", "--tokens", "8", "--tuned", str(configs), cwd=repository)
    assert (done.returncode, done.stdout) == (2, "")
    assert "holds no tables of portable Triton kernels" in done.stderr
    whole = run_moeshapes("explain", "tiny", "--tokens", "8", "--tuned", str(configs), cwd=repository)
    assert whole.stdout.startswith("tiny/tp2#target")
    assert "tp2-triton" not in whole.stdout + run_moeshapes("coverage", "--tuned", str(configs), cwd=repository).stdout


def test_a_row_that_stands_in_the_wrong_table_is_an_error(repository: Path) -> None:
    write(repository / TABLE, text(portable_line(8, **ON_AMD)))
    write(repository / PORTABLE_TABLE, text(tuned_line(8)))
    done = run_moeshapes("lint", cwd=repository)
    assert done.returncode == 1
    assert done.stdout.count(" MOE323 ") == 2


def test_an_nvidia_gpu_in_a_shape_of_aiters_is_refused_with_the_remedy(repository: Path) -> None:
    shape = repository / "shapes/tiny/tp2.yaml"
    shape.write_text(shape.read_text().replace("gpus: [", "gpus: [{gfx: sm_90, cu_num: 132}, "))
    done = run_moeshapes("check", cwd=repository)
    assert done.returncode == 1
    assert "shapes/tiny/tp2.yaml:4:14: error MOE037 `sm_90` is no AMD GPU" in done.stdout
    assert "`csv: triton_tiny_untuned_fmoe.csv`" in done.stdout
