from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.expand import Declarations, DeclaredRow
from moeshapes.findings import Finding, Place
from moeshapes.policy import Deny
from moeshapes.row import TunedRow
from moeshapes.rule import Severity
from moeshapes.rules import lint_rows
from moeshapes.shape import Gpu
from moeshapes.table import read_table, read_tuned_rows
from moeshapes.use import Use
from table_text import STAGE1, STAGE2, line, row, table

ONE_STAGE = "_ZN5aiter52fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256E"
BLOCKSCALE = {"q_dtype_w": "torch.float8_e4m3fn", "q_type": "QuantType.per_1x128"}


def lint(**cells: str) -> list[Finding]:
    """What the rules about names say of a row; its times and environment are nobody's."""
    return [finding for finding in lint_rows([row(**cells)]) if "MOE300" < finding.rule.id < "MOE310"]


def ids(rows: Iterable[TunedRow], shapes: Declarations | None = None) -> list[str]:
    return [finding.rule.id for finding in lint_rows(rows, shapes)]


def use(**facts: Any) -> Use:
    return Use("a/tp4", "target", "a8w4", "silu", **facts)


def declarations(
    tuned: TunedRow, *uses: Use, deny: tuple[Deny, ...] = (), more: Iterable[TunedRow] = ()
) -> Declarations:
    """What declares the rows' keys under the uses."""
    rows = [
        DeclaredRow(
            "a_untuned_fmoe.csv", key.shape, (Gpu(key.gfx, key.cu_num),), each, deny, Place("shapes/a/tp4.yaml", 9, 7)
        )
        for key in (tuned.key, *(other.key for other in more))
        for each in uses or (use(),)
    ]
    return Declarations({}, (), tuple(rows))


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
    shapes = declarations(tuned, deny=(deny, other))
    (finding,) = [finding for finding in lint_rows([tuned], shapes) if finding.rule.id == "MOE307"]
    assert finding.message == (
        f"kernelName1 `{STAGE1}` is denied by {{stage: 1, out_quant: fp8}} at shapes/a/tp4.yaml:12:7: "
        "padded columns are not written"
    )
    assert "MOE307" not in ids([row(token="16")], shapes)


def test_fused_quantisation_under_a_pad() -> None:
    tuned = row()
    padded = use(intermediate_pad=64)
    (finding,) = [f for f in lint_rows([tuned], declarations(tuned, padded)) if f.rule.id == "MOE321"]
    assert (
        finding.message == f"kernelName1 `{STAGE1}` quantises to fp8 under the pad of `a/tp4#target+zeros` (64 of 512)"
    )
    assert "MOE321" not in ids([tuned], declarations(tuned, use()))
    bare = row(kernelName1=STAGE1.removesuffix("_fp8"))
    assert "MOE321" not in ids([bare], declarations(bare, padded))


def test_what_a_declared_use_lets_opus_take() -> None:
    opus = "opus_moe2_afp8_wfp4_atomic_t32x128x256_sbm32"
    tuned = row(kernelName2=opus)
    assert "MOE318" in ids([tuned], declarations(tuned, use(bias=True)))
    assert "MOE318" not in ids([tuned], declarations(tuned, use()))
    passed = use(intermediate_pad=64, pads="arguments")
    assert "MOE310" in ids([tuned], declarations(tuned, passed))
    assert "MOE310" not in ids([tuned], declarations(tuned, use(intermediate_pad=64)))


def test_a_declared_key_needs_no_environment_of_its_own() -> None:
    assert "MOE172" in ids([row()])
    assert "MOE172" not in ids([row()], declarations(row(), use()))


OWN = "generated/aiter/configs/model_configs/a_tuned_fmoe.csv"


def in_the_repository(**cells: str) -> TunedRow:
    tuned = row(**cells)
    return replace(tuned, place=Place(OWN, 2))


def test_rows_that_no_shape_declares() -> None:
    declared, other = in_the_repository(), in_the_repository(token="16")
    assert "MOE133" in ids([declared, other], declarations(declared))
    assert "MOE133" not in ids([declared], declarations(declared))
    assert "MOE133" not in ids([declared, row(token="16")], declarations(declared)), "a table of another tree"
    assert "MOE133" not in ids([other]), "nothing is declared"
    assert "MOE133" not in {f.rule.id for f in lint_rows([other], declarations(declared), sound=False)}


def test_declared_shapes_that_no_row_serves() -> None:
    served, missing = in_the_repository(), in_the_repository(token="16")
    shapes = declarations(served, more=[missing])
    (finding,) = [finding for finding in lint_rows([served], shapes) if finding.rule.id == "MOE177"]
    assert finding.message == "a_tuned_fmoe.csv has no row of `a/tp4#target` on gfx950/256 for 16 tokens"
    assert str(finding.place) == "shapes/a/tp4.yaml:9:7"
    assert "MOE177" not in ids([served, missing], shapes)
    shapes = declarations(served, more=[in_the_repository(token=token) for token in ("64", "16", "32", "256")])
    (finding,) = [finding for finding in lint_rows([served], shapes) if finding.rule.id == "MOE177"]
    assert finding.message.endswith(" for 16..64, 256 tokens")
    assert "MOE177" not in ids([row()], shapes), "the CSV has no tuned row at all"


def test_a_fallback_needs_its_primary() -> None:
    fallback = row(_tag="flydsl_fallback")
    assert "MOE175" in ids([fallback])
    assert "MOE175" not in ids([fallback, row()])


def test_copies_are_told_from_the_row_that_was_measured() -> None:
    measured = {"tflops": "22.37", "bw": "39925.99"}
    rows = [row(token=token, **measured) for token in ("4", "8", "16")]
    found = [finding for finding in lint_rows(rows) if finding.rule.id == "MOE154"]
    assert [finding.message.partition(" at ")[0] for finding in found] == ["60.75 µs, as 8 tokens"] * 2
    nobody = [row(token=token, tflops="1") for token in ("4", "8", "16")]
    assert ids(nobody).count("MOE154") == 3


def test_errors_are_read_in_every_notation() -> None:
    for text, expected in (("19.4%", ["MOE163"]), ("0.194", ["MOE163"]), ("9.4%", ["MOE162"]), ("0.0", []), ("0", [])):
        assert [rule for rule in ids([row(err1=text)]) if rule in ("MOE162", "MOE163")] == expected


def test_devices_without_facts_are_not_judged() -> None:
    assert not {"MOE151", "MOE152", "MOE153"} & set(ids([row(gfx="gfx90a", cu_num="104", us1="1", us2="1", us="2")]))


def test_aiters_rows_have_no_error_of_a_name(aiter_configs: Path) -> None:
    paths = sorted(aiter_configs.rglob("*tuned_fmoe*.csv"))
    found = [finding for path in paths for finding in lint_rows(read_tuned_rows(read_table(path)))]
    errors = {finding.rule.id for finding in found if finding.rule.severity is Severity.ERROR}
    assert errors == {"MOE152", "MOE163"}
    assert Counter(finding.rule.id for finding in found)["MOE306"] == 24 + 24 + 5 + 14


NAMES = (
    "flydsl_moe1_afp8_wfp4_bf16_t{}x{}x{}_w{}_kb{}_gui_xcd4_kw{}_fp8",
    "flydsl_moe1_abf16_wint4_bf16_t{}x{}x{}_kw{}",
    "flydsl_moe2_afp8_wfp8_bf16_t{}x{}x{}_reduce_bnt2_sbm{}",
    "flydsl_moe2_layout_afp4_wfp4_bf16_t{}x{}x{}_atomic_persist_sbm{}",
    "flydsl_mxmoe_g2_a4w4_{}x{}x{}_f4out",
    "opus_moe1_afp8_wfp4_bf16_t{}x{}_gs_qgb{}_fp8",
    "opus_moe1_afp8_wfp4_bf16_t{}x{}_pair_kw{}_m{}",
    "opus_moe2_afp8_wfp4_fp8_t{}x{}x{}_sbm{}_rbn{}",
    "moe_ck2stages_gemm1_{}x{}x{}x{}_1x4_TypeCast_v{}_Nswizzle0_Quant{}_MulRoutedWeight0_silu_B16_B16_B16",
    "_ZN5aiter{}fmoe_bf16_blockscaleFp8_g1u1_flat_vs_silu_{}x{}E",
    "cktile_a8w4_bm{}",
)
NUMBERS = st.lists(st.integers(0, 999_999_999) | st.sampled_from((0, 1, 2, 16, 128)), min_size=6, max_size=6)
DECIMALS = st.sampled_from(("0", "0.0", "", "1e300", "1e-300", "19.4")) | st.floats(0, 1e9).map(repr)


@given(st.sampled_from(NAMES), st.sampled_from(NAMES), NUMBERS, st.data())
def test_nothing_that_can_be_read_makes_a_rule_raise(
    first: str, second: str, numbers: list[int], data: st.DataObject
) -> None:
    cells = {"kernelName1": first.format(*numbers), "kernelName2": second.format(*numbers)}
    for column in ("token", "model_dim", "inter_dim", "expert", "topk", "cu_num", "block_m"):
        cells[column] = str(data.draw(st.integers(1, 1 << 24), column))
    for column in ("us1", "us2", "us", "tflops", "bw"):
        cells[column] = data.draw(DECIMALS, column)
    for column in ("q_dtype_a", "q_dtype_w"):
        cells[column] = data.draw(st.sampled_from(("torch.bfloat16", "torch.float8_e4m3fn", "torch.uint32")), column)
    cells["run_1stage"] = data.draw(st.sampled_from(("0", "1")))
    lint_rows(read_tuned_rows(table(line(**cells), line(**cells))))
