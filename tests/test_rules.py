from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from moeshapes.findings import Finding, Place
from moeshapes.policy import Deny
from moeshapes.rules import lint_rows
from moeshapes.table import read_table, read_tuned_rows
from table_text import STAGE1, STAGE2, row

ONE_STAGE = "_ZN5aiter52fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256E"
BLOCKSCALE = {"q_dtype_w": "torch.float8_e4m3fn", "q_type": "QuantType.per_1x128"}


def lint(**cells: str) -> list[Finding]:
    return lint_rows([row(**cells)])


def rules(**cells: str) -> list[str]:
    return [finding.rule.id for finding in lint(**cells)]


def test_a_sound_row_has_no_finding() -> None:
    assert lint() == []
    assert rules(run_1stage="1", kernelName1=ONE_STAGE, kernelName2="", **BLOCKSCALE) == []


def test_unknown_kernels_are_said_to_be_unchecked() -> None:
    (finding,) = lint(kernelName1="triton_moe1_t16x128x128")
    assert finding.rule.id == "MOE301"
    assert "cannot check" in finding.message


@pytest.mark.parametrize(
    "cells",
    [
        {"kernelName1": STAGE2},
        {"kernelName2": STAGE1},
        {"kernelName2": ""},
        {"kernelName2": "Null"},
        {"run_1stage": "1", "kernelName1": ONE_STAGE, **BLOCKSCALE, "kernelName2": STAGE2.replace("wfp4", "wfp8")},
        {"run_1stage": "1", "kernelName2": ""},
    ],
)
def test_kernels_of_another_stage(cells: dict[str, str]) -> None:
    assert rules(**cells) == ["MOE302"]


def test_formats_of_names_and_keys() -> None:
    assert rules(q_dtype_a="torch.bfloat16") == ["MOE303", "MOE303"]
    assert rules(q_dtype_w="torch.int4") == ["MOE303", "MOE303"]
    (finding,) = lint(kernelName2=STAGE2.replace("afp8", "afp4"))
    assert (
        finding.message
        == f"kernelName2 `{STAGE2.replace('afp8', 'afp4')}` takes fp4, but q_dtype_a is `torch.float8_e4m3fn`"
    )


@pytest.mark.parametrize(
    ("tile1", "tile2", "block_m", "expected"),
    [
        ("t128x256x256", "t64x128x256_atomic", "128", ["MOE304"]),
        ("t128x256x256", "t64x256x256_atomic_sbm128", "128", []),
        ("t128x256x256", "t64x128x128_reduce_sbm128", "128", []),
        ("t32x256x256", "t16x128x256_atomic_sbm32", "32", []),
        ("t32x256x256", "t32x128x256_atomic", "64", ["MOE304", "MOE304"]),
        ("t64x256x256", "t32x128x256_atomic", "32", ["MOE304"]),
    ],
)
def test_blocks_that_kernels_read(tile1: str, tile2: str, block_m: str, expected: list[str]) -> None:
    names = (f"flydsl_moe1_afp8_wfp4_bf16_{tile1}_gui_fp8", f"flydsl_moe2_afp8_wfp4_bf16_{tile2}")
    assert rules(kernelName1=names[0], kernelName2=names[1], block_m=block_m) == expected


def test_mxmoe_sorts_by_its_own_tile() -> None:
    names = ("flydsl_mxmoe_g1_a4w4_16x256x256_f16in_nt", "flydsl_mxmoe_g2_a4w4_16x256x256_atomic")
    assert rules(kernelName1=names[0], kernelName2=names[1], q_dtype_a="torch.float4_e2m1fn_x2", block_m="32") == []


def test_flat_kernels_sort_nothing() -> None:
    flat = "_ZN5aiter48fmoe_bf16_blockscaleBf16_g1u1_flat_vs_silu_1x128E"
    assert rules(kernelName1=flat, kernelName2="", run_1stage="1", block_m="16", **BLOCKSCALE) == []


def test_a_wrong_symbol_length_is_corrected() -> None:
    wrong = ONE_STAGE.replace("52", "50")
    (finding,) = lint(run_1stage="1", kernelName1=wrong, kernelName2="", **BLOCKSCALE)
    assert finding.rule.id == "MOE305"
    assert finding.remedy == f"Write `{ONE_STAGE}`."


def test_labels_are_named_as_such() -> None:
    assert rules(kernelName1="cktile_a8w4_bm64", kernelName2="cktile_a8w4_bm32") == ["MOE306"]
    label = "swiglu_mxfp4_bf16_cktile"
    assert rules(kernelName1=label, kernelName2=label, q_dtype_a="torch.bfloat16") == ["MOE306", "MOE306"]


def test_policies_deny_kernels() -> None:
    tuned = row()
    deny = Deny({"stage": 1, "out_quant": "fp8"}, "padded columns are not written", Place("shapes/a/tp4.yaml", 12, 7))
    other = Deny({"xcd": 4}, "NaN seen", Place("shapes/a/tp4.yaml", 13, 7))
    (finding,) = lint_rows([tuned], {tuned.key.shape: (deny, other)})
    assert finding.rule.id == "MOE307"
    assert finding.message == (
        f"kernelName1 `{STAGE1}` is denied by {{stage: 1, out_quant: fp8}} at shapes/a/tp4.yaml:12:7: "
        "padded columns are not written"
    )
    assert lint_rows([row(token="16")], {tuned.key.shape: (deny,)}) == []


def test_aiters_rows_have_no_errors(aiter_configs: Path) -> None:
    paths = sorted(aiter_configs.rglob("*tuned_fmoe*.csv"))
    found = [finding for path in paths for finding in lint_rows(read_tuned_rows(read_table(path)))]
    assert Counter(finding.rule.id for finding in found) == {"MOE306": 24 + 24 + 5 + 14}
