"""Parity with AITER's untuned tables: each file's counts, and which row is missing or too many."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from declared import SHAPE, write_repository
from moeshapes.parity import ParityResult, compare
from moeshapes.repository import load_declarations
from process import run_moeshapes

HEADER = "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1\n"
ROW = "{},5120,576,384,6,ActivationType.Silu,torch.bfloat16,{f},{f},QuantType.per_Token,1,0\n"
CSV = "model_configs/demo_untuned_fmoe.csv"


def upstream_row(token: int) -> str:
    return ROW.format(token, f="torch.float8_e4m3fn")


def compared(tmp_path: Path, upstream: str, shape: str = SHAPE, csv: str = CSV) -> ParityResult:
    configs = tmp_path / "aiter"
    (configs / csv).parent.mkdir(parents=True)
    (configs / csv).write_text(upstream)
    declarations, findings = load_declarations(write_repository(tmp_path, {"demo/tp4": shape}))
    assert not findings
    return compare(configs, declarations)


def test_equal_sets_of_rows_are_at_parity_in_any_order(tmp_path: Path) -> None:
    result = compared(tmp_path, HEADER + upstream_row(32) + upstream_row(1).rstrip())
    assert result.findings == ()
    (file,) = result.files
    assert (file.csv, file.upstream, file.declared, file.missing, file.surplus) == (
        "demo_untuned_fmoe.csv",
        2,
        2,
        0,
        (),
    )


def test_rows_of_the_portable_kernels_are_not_aiters(tmp_path: Path) -> None:
    portable = SHAPE.replace("csv: demo", "csv: triton_demo")
    write_repository(tmp_path, {"demo/tp4-triton": portable})
    result = compared(tmp_path, HEADER + upstream_row(32) + upstream_row(1))
    assert result.findings == ()
    assert [file.csv for file in result.files] == ["demo_untuned_fmoe.csv"]


def test_a_row_that_no_shape_declares_is_named_at_its_line(tmp_path: Path) -> None:
    result = compared(tmp_path, HEADER + upstream_row(1) + upstream_row(64) + upstream_row(32))
    (finding,) = result.findings
    assert (finding.rule.name, str(finding.place)) == ("upstream-row-missing", f"{CSV}:3")
    assert upstream_row(64).strip() in finding.message


def test_a_row_declared_for_another_file_is_missing(tmp_path: Path) -> None:
    result = compared(tmp_path, HEADER + upstream_row(1), csv="model_configs/other_untuned_fmoe.csv")
    assert [finding.rule.name for finding in result.findings] == ["unexplained-surplus", "upstream-row-missing"]


def test_surplus_is_explained_or_a_warning_where_it_is_declared(tmp_path: Path) -> None:
    result = compared(tmp_path / "without", HEADER + upstream_row(1))
    (finding,) = result.findings
    assert (finding.rule.name, str(finding.place)) == ("unexplained-surplus", "shapes/demo/tp4.yaml:7:33")
    result = compared(tmp_path / "with", HEADER + upstream_row(1), SHAPE + "not_upstream: tuned here first\n")
    assert result.findings == ()
    assert [(s.deployment, s.rows, s.reason) for s in result.files[0].surplus] == [("demo/tp4", 1, "tuned here first")]


@pytest.mark.parametrize(
    "line", ["<<<<<<< HEAD\n", "1,2,3\n", upstream_row(1).replace("5120", "many")], ids=["marker", "short", "text"]
)
def test_malformed_rows_are_named_and_not_counted(tmp_path: Path, line: str) -> None:
    result = compared(tmp_path, HEADER + upstream_row(1) + line + upstream_row(32))
    assert [finding.place.line for finding in result.findings] == [3]
    assert result.files[0].upstream == 2


def test_a_spelling_that_a_lookup_would_replace_is_compared_as_written(tmp_path: Path) -> None:
    respelled = upstream_row(1).replace("per_Token", "per_128x128")
    result = compared(tmp_path, HEADER + upstream_row(1) + upstream_row(32) + respelled)
    assert [(f.rule.name, f.place.line) for f in result.findings] == [("upstream-row-missing", 4)]


def test_all_of_aiters_rows_are_declared(root: Path, aiter_configs: Path) -> None:
    declarations, _ = load_declarations(root)
    result = compare(aiter_configs, declarations)
    assert result.findings == ()
    assert sum(file.upstream for file in result.files) == 1201
    assert sum(file.upstream > 0 for file in result.files) == 30
    assert {(s.deployment, s.rows) for file in result.files for s in file.surplus} == {
        ("deepseek-v4.1-flash/tp4", 8),
        ("gpt-oss-120b/tp8-a8w4", 16),
        ("mixtral-8x22b/tp4-fp8", 16),
        ("mixtral-8x22b/tp4-int8", 15),
    }
    assert result.left_out == ("untuned_fhmoe.csv", "untuned_grouped_fmoe.csv")


def test_generated_files_have_aiters_rows(root: Path, aiter_configs: Path) -> None:
    """The files themselves, without this package's reader."""
    for path in (aiter_configs / "untuned_fmoe.csv", *(aiter_configs / "model_configs").glob("*untuned_fmoe*.csv")):
        own = root / "generated" / "aiter" / "configs" / path.relative_to(aiter_configs)
        header, *rows = path.read_text().splitlines()
        own_header, *own_rows = own.read_text().splitlines()
        assert own_header == header
        assert set(rows) <= set(own_rows)
        assert len(own_rows) == len(set(own_rows))


def test_the_command_fails_once_a_row_is_removed_from_a_shape(root: Path, tmp_path: Path, aiter_configs: Path) -> None:
    for folder in ("models", "shapes"):
        shutil.copytree(root / folder, tmp_path / folder)
    checkout = tmp_path / "checkout"
    shutil.copytree(aiter_configs, checkout / "aiter" / "configs")
    done = run_moeshapes("parity", "--aiter", str(checkout), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    shape = tmp_path / "shapes" / "glm-5" / "tp8-fp8-token.yaml"
    shape.write_text(shape.read_text().replace("1..32768", "1..16384"))
    done = run_moeshapes("parity", "--aiter", str(checkout / "aiter" / "configs"), "--format", "json", cwd=tmp_path)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    (finding,) = document["findings"]
    assert (finding["file"], finding["line"]) == ("model_configs/glm5_ptpc_untuned_fmoe.csv", 17)
    assert [file["csv"] for file in document["files"] if file["missing"]] == ["glm5_ptpc_untuned_fmoe.csv"]


def test_a_folder_without_tables_is_refused(root: Path, tmp_path: Path) -> None:
    done = run_moeshapes("parity", "--aiter", str(tmp_path), cwd=root)
    assert done.returncode == 2
    assert "no AITER checkout" in done.stderr
