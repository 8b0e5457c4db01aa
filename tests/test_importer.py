"""Imports of tables and logs: what comes out declares exactly what went in, or says why not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from declared import MODEL, SHAPE, write_repository
from moeshapes.dispatch import BUCKETS
from moeshapes.findings import has_errors
from moeshapes.importer import ImportResult, import_file
from moeshapes.parity import compare, untuned_files
from moeshapes.recipe import RECIPES
from moeshapes.repository import load_declarations
from moeshapes.row import UNTUNED_COLUMNS, UntunedRow
from moeshapes.table import render_untuned
from process import run_moeshapes
from table_text import line, text

HEADER = ",".join(UNTUNED_COLUMNS)
FP8 = "torch.float8_e4m3fn"
ROW = f"8,5120,576,385,7,ActivationType.Silu,torch.bfloat16,{FP8},{FP8},QuantType.per_Token,1,0"
MISS = (
    "[aiter] [fused_moe] using 2stage default for ('gfx950', 256, {}, 5120, 576, {}, <ActivationType.Silu: 0>,"
    " 'torch.bfloat16', 'torch.float8_e4m3fn', 'torch.float8_e4m3fn', 'QuantType.per_Token', True, False)\n"
)


def imported(root: Path, content: str, name: str = "demo_untuned_fmoe.csv") -> ImportResult:
    """What comes of a file, in a repository that has the demo model."""
    declarations, findings = load_declarations(root)
    assert not findings
    (root / name).write_text(content)
    return import_file(root / name, name, "", declarations)


def rows_of(root: Path, result: ImportResult) -> set[UntunedRow]:
    """The rows that a repository declares once the imported files stand in it."""
    for path, content in result.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    declarations, findings = load_declarations(root)
    assert not findings
    return {row.written for row in declarations.rows}


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return write_repository(tmp_path, {}, {"demo": MODEL})


def test_a_table_becomes_the_shape_that_gives_it(demo: Path) -> None:
    result = imported(demo, f"{HEADER}\n{ROW}\n")
    assert result.findings == ()
    (path,) = result.files
    assert path == "shapes/demo/tp4-fp8-token.yaml"
    assert "shared_experts: fused\n    tokens: [8]\n" in result.files[path]
    assert [",".join(row.cells()) for row in rows_of(demo, result)] == [ROW]


def test_what_is_declared_already_is_not_repeated(tmp_path: Path) -> None:
    root = write_repository(tmp_path, {"demo/tp4": SHAPE})
    rows = [ROW.replace("8,5120,576,385,7", dims) for dims in ("1,5120,576,384,6", "64,5120,576,384,6")]
    result = imported(root, "\n".join([HEADER, *rows, ""]))
    (path,) = result.files
    assert path == "shapes/demo/tp4-fp8-token.yaml"
    assert "tokens: [64]" in result.files[path]


@pytest.mark.parametrize("tuned", [False, True])
def test_that_all_is_declared_already_is_said(tmp_path: Path, tuned: bool) -> None:
    root = write_repository(tmp_path, {"demo/tp4": SHAPE})
    cells = dict(zip(UNTUNED_COLUMNS, ROW.replace("8,5120,576,385,7", "1,5120,576,384,6").split(","), strict=True))
    content = text(line(**cells)).decode() if tuned else f"{HEADER}\n{','.join(cells.values())}\n"
    result = imported(root, content, "demo_tuned_fmoe.csv" if tuned else "demo_untuned_fmoe.csv")
    assert (result.files, result.findings) == ({}, ())
    assert result.counts == ("all of its rows (1) are declared already, by demo/tp4",)


def test_rows_that_follow_from_no_model_are_said(demo: Path) -> None:
    result = imported(demo, "\n".join([HEADER, ROW, ROW.replace("5120", "4096"), ROW.replace("385,7", "300,7"), ""]))
    assert [(f.rule.name, f.place.line) for f in result.findings] == [("no-origin", 3), ("no-origin", 4)]
    assert len(result.files) == 1


def test_a_recipe_that_is_not_known_is_said(demo: Path) -> None:
    result = imported(
        demo, f"{HEADER}\n{ROW.replace('per_Token', 'per_1x128').replace('torch.bfloat16', 'torch.float16')}\n"
    )
    assert [f.rule.name for f in result.findings] == ["no-origin"]
    assert "no recipe has torch.float16" in result.findings[0].message


def test_malformed_rows_are_said_and_the_rest_imported(demo: Path) -> None:
    result = imported(demo, f"{HEADER}\n<<<<<<< HEAD\n{ROW}\n1,2,3\n")
    assert [f.place.line for f in result.findings] == [2, 4]
    assert len(result.files) == 1


def test_a_width_that_no_kernel_takes_is_refused_by_the_reader(demo: Path) -> None:
    dims = ROW.replace("per_Token", "per_1x128")
    result = imported(demo, f"{HEADER}\n{dims}\n")
    assert [f.rule.name for f in result.findings] == ["width"]
    assert result.files == {}


def test_a_tuned_table_says_its_gpu(demo: Path) -> None:
    cells = {"model_dim": "5120", "inter_dim": "576", "expert": "384", "topk": "6", "q_type": "QuantType.per_Token"}
    fp8 = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fnuz")
    content = text(line(gfx="gfx942", cu_num="80", **cells, **fp8)).decode()
    result = imported(demo, content, "demo_tuned_fmoe.csv")
    (shape,) = result.files.values()
    assert "gpus: [{gfx: gfx942, cu_num: 80}]" in shape
    assert "csv: demo_untuned_fmoe.csv" in shape


def test_tables_of_the_portable_kernels_become_shapes_of_theirs(demo: Path) -> None:
    """Neither gates nor variables decide whether their rows are found; the GPU that a tuned row names is kept."""
    cells = {"model_dim": "5120", "inter_dim": "640", "expert": "384", "topk": "6", "gfx": "sm_90", "cu_num": "132"}
    for name, content in (
        ("triton_demo_tuned_fmoe.csv", text(line(**cells))),
        ("triton_demo_untuned_fmoe.csv", text(line(UNTUNED_COLUMNS, **cells), header=UNTUNED_COLUMNS)),
    ):
        result = imported(demo, content.decode(), name)
        assert not has_errors(result.findings)
        (shape,) = result.files.values()
        assert "csv: triton_demo_untuned_fmoe.csv" in shape
        assert ("gfx: sm_90" in shape) is ("_tuned" in name)
        assert "gate_mode:" not in shape
        assert "env:" not in shape


def test_a_row_that_only_the_portable_kernels_have_is_not_declared_for_aiter(tmp_path: Path) -> None:
    portable = SHAPE.replace("csv: demo", "csv: triton_demo")
    root = write_repository(tmp_path, {"demo/tp4": portable}, {"demo": MODEL})
    fp8 = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fn")
    cells = {"token": "1", "model_dim": "5120", "inter_dim": "576", "expert": "384", "topk": "6"}
    result = imported(root, text(line(**cells, **fp8, q_type="QuantType.per_Token")).decode(), "a_tuned_fmoe.csv")
    (shape,) = result.files.values()
    assert "csv: demo_untuned_fmoe.csv" in shape


@pytest.mark.parametrize("name", ["a.csv.bak", "a.csv.online_tune_bak", "profile_fmoe.csv", "a_untuned_fmoe.csv~"])
def test_by_products_are_passed_over(demo: Path, name: str) -> None:
    result = imported(demo, f"{HEADER}\n{ROW}\n", name)
    assert [f.rule.name for f in result.findings] == ["backup-or-profile"]
    assert not has_errors(result.findings)
    assert result.files == {}


@pytest.mark.parametrize("content", ["", "hello\nworld\n", "token,model_dim\n", HEADER, "\x00\x01"])
def test_a_file_of_another_kind_is_refused(demo: Path, content: str) -> None:
    result = imported(demo, content, "a_untuned_fmoe.csv")
    assert "nothing-to-import" in [f.rule.name for f in result.findings]
    assert result.files == {}


def test_a_log_is_counted_by_key(demo: Path) -> None:
    noise = "INFO: 127.0.0.1 - POST /v1/completions 200\n"
    hit = MISS.format(32, "385, 7").replace("default", "(kernelName1='a', kernelName2='b')")
    log = noise + MISS.format(8, "385, 7") * 3 + hit + MISS.format(16384, "384, 6") + MISS.format(1, "385, 7")
    result = imported(demo, log, "serve.log")
    assert result.findings == ()
    assert [count.split()[0] for count in result.counts] == ["3", "1", "1"]
    (shape,) = result.files.values()
    assert "# Misses at token: 1 at 1, 3 at 8, 1 at 16384." in shape
    assert {(row.token, row.expert) for row in rows_of(demo, result)} == {(8, 385), (1, 385), (16384, 384)}


def test_a_miss_of_a_declared_row_is_counted_too(tmp_path: Path) -> None:
    root = write_repository(tmp_path, {"demo/tp4": SHAPE})
    result = imported(root, MISS.format(32, "384, 6"), "serve.log")
    assert result.files == {}
    assert result.counts[0].endswith("declared by demo/tp4, but serving has no row")


def test_a_log_without_misses_is_no_fault(demo: Path) -> None:
    hit = MISS.format(32, "385, 7").replace("default", "(kernelName1='a', kernelName2='b')")
    result = imported(demo, hit, "serve.log")
    assert result.findings == ()
    assert result.counts == ("no lookup in it missed (1 found a row)",)


def test_a_line_that_is_cut_off_is_said(demo: Path) -> None:
    result = imported(demo, MISS.format(8, "385, 7") + MISS.format(8, "385, 7")[:90] + "\n", "serve.log")
    assert [(f.rule.name, f.place.line) for f in result.findings] == [("log-line", 2)]
    assert len(result.files) == 1


RECIPE_WIDTHS = st.sampled_from([name for name in RECIPES if name not in ("fp8_block", "a4w4", "a8w4", "mxfp8")])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    recipe=RECIPE_WIDTHS,
    ranks=st.sampled_from([(1, 1), (2, 1), (4, 1), (8, 8), (16, 16)]),
    fused=st.booleans(),
    tokens=st.sets(st.sampled_from(BUCKETS), min_size=1),
    gpu=st.sampled_from(["gfx950, cu_num: 256", "gfx942, cu_num: 304"]),
    doweight=st.booleans(),
)
def test_whatever_a_shape_declares_is_found_again(
    tmp_path: Path, recipe: str, ranks: tuple[int, int], fused: bool, tokens: set[int], gpu: str, doweight: bool
) -> None:
    shape = (
        f"model: demo\ntp: {ranks[0]}\nep: {ranks[1]}\ncsv: demo_untuned_fmoe.csv\ngpus: [{{gfx: {gpu}}}]\n"
        f"recipe: {recipe}\ngate_mode: interleave\ndoweight_stage1: {str(doweight).lower()}\n"
        f"moe:\n  - {{block: target, shared_experts: {'fused' if fused else 'separate'}, tokens: {sorted(tokens)}}}\n"
    )
    shutil.rmtree(tmp_path)
    there = tmp_path / "there"
    declarations, findings = load_declarations(write_repository(there, {"demo/a": shape}, {"demo": MODEL}))
    if findings:  # no call asks for 16-bit activations in all buckets
        return
    (rows,) = declarations.csvs.values()
    here = write_repository(tmp_path / "here", {}, {"demo": MODEL})
    result = imported(here, render_untuned(rows).decode())
    assert not has_errors(result.findings)
    assert rows_of(here, result) == set(rows)


def test_aiters_tables_come_out_of_the_models_alone(root: Path, tmp_path: Path, aiter_configs: Path) -> None:
    """Every published untuned table, imported into a repository that has only models, is declared whole."""
    shutil.copytree(root / "models", tmp_path / "models")
    for path in untuned_files(aiter_configs):
        declarations, _ = load_declarations(tmp_path)
        result = import_file(path, path.name, "", declarations)
        assert not has_errors(result.findings)
        for name, content in result.files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
    declarations, findings = load_declarations(tmp_path)
    assert not findings
    result_of_all = compare(aiter_configs, declarations)
    assert not has_errors(result_of_all.findings)
    assert sum(file.missing for file in result_of_all.files) == 0
    assert sum(file.surplus_rows for file in result_of_all.files) == 0


def test_the_command_prints_or_writes_and_overwrites_nothing(demo: Path) -> None:
    (demo / "shapes").mkdir()
    table = demo / "demo_untuned_fmoe.csv"
    table.write_text(f"{HEADER}\n{ROW}\n")
    printed = run_moeshapes("import", table.name, cwd=demo)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.startswith("# shapes/demo/tp4-fp8-token.yaml\n")
    assert not (demo / "shapes" / "demo").exists()
    elsewhere = demo / "elsewhere"
    for status in (0, 1):
        written = run_moeshapes("import", table.name, "--output", str(elsewhere), cwd=demo)
        assert written.returncode == status, written.stdout + written.stderr
        content = (elsewhere / "shapes/demo/tp4-fp8-token.yaml").read_text()
        assert f"# shapes/demo/tp4-fp8-token.yaml\n{content}" == printed.stdout.rstrip("\n") + "\n"
    assert "MOE611" in written.stdout


def test_the_command_imports_a_config(demo: Path) -> None:
    config = demo / "config.json"
    (demo / "shapes").mkdir()
    shutil.copy(Path(__file__).parent / "examples" / "configs" / "qwen3.json", config)
    refused = run_moeshapes("import", config.name, cwd=demo)
    assert refused.returncode == 1
    assert "--checkpoint" in refused.stdout
    done = run_moeshapes("import", config.name, "--checkpoint", "Qwen/Qwen3-Coder-480B-A35B-Instruct", cwd=demo)
    assert done.returncode == 0
    assert done.stdout.startswith("# models/qwen3-coder-480b-a35b-instruct.yaml\n")
