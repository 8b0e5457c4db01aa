"""What lint says of rows of the portable kernels, and which of AITER's rules it spares them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from declared import write_repository
from moeshapes.baseline import write_baseline
from moeshapes.findings import Finding
from moeshapes.lint import lint_files
from moeshapes.repository import load_declarations
from moeshapes.row import TunedRow
from moeshapes.rules import lint_rows
from small_repository import (
    MODEL,
    PORTABLE_KERNELS,
    PORTABLE_SHAPE,
    PORTABLE_TABLE,
    TABLE,
    portable_line,
    portable_row,
    tuned_row,
    write_both_backends,
)
from table_text import text, write

FIRST, SECOND = PORTABLE_KERNELS
THROUGHPUT = ("MOE160", "MOE161")
"""Rules about figures that these rows do not have right."""


def found(*rows: TunedRow) -> list[Finding]:
    return [finding for finding in lint_rows(rows) if finding.rule.id not in THROUGHPUT]


def rules(*rows: TunedRow) -> list[str]:
    return [finding.rule.id for finding in found(*rows)]


def standing_in(row: TunedRow, file: str) -> TunedRow:
    return replace(row, place=replace(row.place, file=file))


def named(first: str = FIRST, second: str = SECOND, **cells: str) -> TunedRow:
    return portable_row(8, kernelName1=first, kernelName2=second, **cells)


@pytest.mark.parametrize("device", [("sm_90", "132"), ("gfx950", "256"), ("gfx942", "304")])
def test_a_sound_row_has_no_finding_on_any_gpu(device: tuple[str, str]) -> None:
    assert rules(portable_row(8, gfx=device[0], cu_num=device[1])) == []


def test_no_gpu_reads_faster_than_its_memory() -> None:
    """Two experts of MXFP4 at the peak of an H200's kind, and at that of an MI355X."""
    us = {"sm_90": 2 * 3 * 256 * 256 / 2 / 4.9e6, "gfx950": 2 * 3 * 256 * 256 / 2 / 8e6}
    for device in (("sm_90", "132"), ("gfx950", "256")):
        told = {"gfx": device[0], "cu_num": device[1], "us2": "0"}
        for share, expected in ((0.99, ["MOE151"]), (1.01, [])):
            time = f"{share * us[device[0]]:.5f}"
            assert rules(portable_row(8, us1=time, us=time, **told)) == expected


# --- tables


@pytest.mark.parametrize("file", [PORTABLE_TABLE, "a_tuned_fmoe.csv", "/elsewhere/generated/triton/a_tuned_fmoe.csv"])
def test_a_row_stands_in_a_table_of_its_kernels(file: str) -> None:
    assert rules(standing_in(portable_row(), file)) == []


@pytest.mark.parametrize("file", [TABLE, "aiter/configs/tuned_fmoe.csv"])
def test_a_row_in_a_table_of_aiters_is_named(file: str) -> None:
    (finding,) = found(standing_in(portable_row(), file))
    assert (finding.rule.id, finding.place.file) == ("MOE323", file)
    assert finding.message.endswith("is a portable kernel, and this is a table of AITER's")


def test_a_row_of_aiters_in_a_table_of_the_portable_kernels_is_named() -> None:
    (finding,) = found(standing_in(tuned_row(), PORTABLE_TABLE))
    assert (finding.rule.id, "this is a table of the portable kernels" in finding.message) == ("MOE323", True)


@pytest.mark.parametrize("names", [(FIRST, tuned_row().kernel2), (tuned_row().kernel1, SECOND)])
def test_a_row_of_two_backends_is_named_wherever_it_stands(names: tuple[str, str]) -> None:
    for file in ("a_tuned_fmoe.csv", TABLE, PORTABLE_TABLE):
        row = standing_in(named(*names, gfx="gfx950", cu_num="256"), file)
        assert [finding.message for finding in found(row) if finding.rule.id == "MOE323"] == [
            f"`{names[0]}` and `{names[1]}` are of two backends, and one alone runs a row"
        ]


def test_a_table_in_the_other_folder_is_named_even_without_rows(tmp_path: Path) -> None:
    write_both_backends(tmp_path)
    misplaced = [
        Path(TABLE).with_name("triton_tiny_tuned_fmoe.csv"),
        Path(PORTABLE_TABLE).with_name("a_tuned_fmoe.csv"),
    ]
    for path in misplaced:
        write(tmp_path / path, text())
    result = lint_files([tmp_path / path for path in misplaced], tmp_path)
    assert [(finding.rule.id, finding.place.file) for finding in result.findings] == [
        ("MOE323", path.as_posix()) for path in misplaced
    ]
    write_baseline(tmp_path / "baseline.json", result.findings, result.tables)
    again = lint_files([tmp_path / path for path in misplaced], tmp_path, tmp_path / "baseline.json")
    assert (again.findings, again.known) == ((), 2)


# --- kernels


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("t16x64x128", "t16x96x128", "has tile N 96, where Triton takes powers of two"),
        ("t16x64x128_w4", "t16x48x96_w3", "has tile N 48, tile K 96, warps 3, where Triton takes powers of two"),
        ("_w4_", "_w64_", "has 64 warps and 2 stages: 32 at most, and 1 at least"),
        ("_s2", "_s0", "has 4 warps and 0 stages: 32 at most, and 1 at least"),
        ("t16x64x128", "t16x64x16", "steps over less than a scale block of 32"),
    ],
)
@pytest.mark.parametrize("stage", [1, 2])
def test_a_tile_that_cannot_be_compiled_is_named(old: str, new: str, message: str, stage: int) -> None:
    names = [name.replace(old, new) if at == stage else name for at, name in enumerate(PORTABLE_KERNELS, 1)]
    (finding,) = found(named(*names))
    assert (finding.rule.id, finding.message) == ("MOE324", f"kernelName{stage} `{names[stage - 1]}` {message}")


def test_tiles_need_not_divide_a_dim_since_they_are_masked() -> None:
    wide = [name.replace("t16x64x128", "t16x128x512") for name in PORTABLE_KERNELS]
    assert rules(named(*wide, model_dim="288", inter_dim="96")) == []


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (f"{FIRST}_fp8", "writes fp8, which stage 2 of a4w4 does not read"),
        (f"{FIRST.replace('16x64', '16x16')}_fp4", "writes scales for blocks of 32 columns, from tiles of 16"),
    ],
)
def test_an_epilogue_that_stage_2_does_not_read_is_named(first: str, message: str) -> None:
    (finding,) = found(named(first))
    assert finding.message == f"kernelName1 `{first}` {message}"
    assert rules(named(f"{FIRST}_fp4")) == []


FP8_KERNELS = tuple(name.replace("afp4_wfp4", "afp8_wfp8") for name in PORTABLE_KERNELS)
FP8 = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fn")
FNUZ = dict.fromkeys(("q_dtype_a", "q_dtype_w"), "torch.float8_e4m3fnuz")


def test_a_step_over_two_scale_blocks_is_named() -> None:
    blocks = {**FP8, "q_type": "QuantType.per_1x128"}
    assert rules(named(*FP8_KERNELS, **blocks)) == []
    wide = [name.replace("x128_", "x256_") for name in FP8_KERNELS]
    assert [finding.message.partition("` ")[2] for finding in found(named(*wide, **blocks))] == [
        "steps over more than one scale block of 128"
    ] * 2


def test_recipes_and_flavours_that_the_backend_lacks_are_named() -> None:
    (finding,) = found(named(*FP8_KERNELS, **FP8, q_type="QuantType.per_Tensor"))
    assert (finding.rule.id, finding.message) == (
        "MOE324",
        "sm_90: the portable backend has no kernels for fp8_tensor",
    )
    row = named(*FP8_KERNELS, **FNUZ, q_type="QuantType.per_Token", gfx="gfx942", cu_num="304")
    (finding,) = found(row)
    assert finding.message.startswith("gfx942: the portable backend reads fp8 as e4m3fn")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"block_m": "32"}, ["MOE304", "MOE304"]),
        ({"q_dtype_w": "torch.float8_e4m3fn"}, ["MOE303", "MOE303"]),
        ({"kernelName1": SECOND}, ["MOE302"]),
        ({"ksplit": "2"}, ["MOE317"]),
        ({"xbf16": "1", "flat": "1"}, ["MOE317", "MOE317"]),
    ],
    ids=str,
)
def test_names_agree_with_the_key_the_blocks_and_the_flags(cells: dict[str, str], expected: list[str]) -> None:
    row = portable_row(8, **cells)
    assert [rule for rule in rules(row) if rule < "MOE318"] == expected


# --- what is AITER's alone


def test_what_aiter_would_ask_for_does_not_matter() -> None:
    """AITER asks for fp8 activations of MXFP4 weights on gfx950 alone, and never below 256 tokens by itself."""
    a8w4 = [name.replace("afp4", "afp8") for name in PORTABLE_KERNELS]
    for gfx, cu_num in (("sm_90", "132"), ("gfx950", "256")):
        assert rules(named(*a8w4, q_dtype_a="torch.float8_e4m3fn", gfx=gfx, cu_num=cu_num)) == []


def test_pads_are_written_by_a_fused_epilogue_too(tmp_path: Path) -> None:
    padded = PORTABLE_SHAPE.replace("tp: 2", "tp: 3\npad: {inter_dim: 256}")
    declarations, wrong = load_declarations(write_repository(tmp_path, {"tiny/tp3": padded}, {"tiny": MODEL}))
    assert not wrong
    row = named(f"{FIRST}_fp4")
    assert [use.intermediate_pad for use in declarations.uses_of(row)] == [85]
    assert [finding.rule.id for finding in lint_rows([row], declarations) if finding.rule.id == "MOE321"] == []


def test_rows_of_one_key_for_two_backends_are_no_series() -> None:
    """The portable row at 8 has the time of AITER's at 1, and other kernels than AITER's around it."""
    on_amd = portable_row(8, gfx="gfx950", cu_num="256", us1="5", us2="4", us="9")
    aiters = [tuned_row(token, us1=f"{50 + token}", us2="20", us=f"{70 + token}") for token in (4, 8, 16)]
    assert not {"MOE157", "MOE174", "MOE201"} & set(rules(*aiters, on_amd))


# --- buckets


def repository(tmp_path: Path, left_out: str) -> Path:
    shape = PORTABLE_SHAPE.replace("tokens: [1, 8]", f"tokens: [1, 8, 16], left_out: [{left_out}]")
    write_repository(tmp_path, {"tiny/tp2-triton": shape}, {"tiny": MODEL})
    lines = [portable_line(token, gfx="sm_90", us1=f"{40 + token}.5", us=f"{60 + token}.75") for token in (1, 8)]
    write(tmp_path / PORTABLE_TABLE, text(*lines))
    return tmp_path


def messages(root: Path, rule: str) -> list[str]:
    return [found.message for found in lint_files([root / PORTABLE_TABLE], root).findings if found.rule.id == rule]


def test_buckets_that_are_left_out_with_a_reason_are_no_gap(tmp_path: Path) -> None:
    whole = repository(tmp_path / "whole", "{tokens: [2, 4], reason: nothing was faster}")
    assert messages(whole, "MOE173") == []
    part = repository(tmp_path / "part", "{tokens: 2, reason: nothing was faster}")
    (message,) = messages(part, "MOE173")
    assert message.startswith("no row for 4 between ")


def test_no_bucket_is_missing_while_a_declaration_cannot_be_read(tmp_path: Path) -> None:
    part = repository(tmp_path, "{tokens: 2, reason: nothing was faster}")
    write(tmp_path / "shapes/tiny/tp4.yaml", b"model: [")
    assert messages(part, "MOE173") == []


def test_buckets_that_lack_a_row_are_listed_by_gpu(tmp_path: Path) -> None:
    root = repository(tmp_path, "{tokens: [2, 4], reason: nothing was faster}")
    assert messages(root, "MOE177") == [
        "triton_tiny_tuned_fmoe.csv has no row of `tiny/tp2-triton#target` on gfx950/256 for 1, 8, 16 tokens",
        "triton_tiny_tuned_fmoe.csv has no row of `tiny/tp2-triton#target` on sm_90/132 for 16 tokens",
    ]


def test_a_row_is_undeclared_where_only_the_other_backend_has_its_key(tmp_path: Path) -> None:
    write_both_backends(tmp_path)
    (tmp_path / "shapes/tiny/tp2-triton.yaml").unlink()
    write(tmp_path / PORTABLE_TABLE, text(portable_line(8, gfx="gfx950", cu_num="256")))
    (message,) = messages(tmp_path, "MOE133")
    assert message.endswith(" for the portable kernels")
