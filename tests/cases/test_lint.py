"""Published faults of tuned rows: each as it happened, with what lint says of it. Named by their case."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from moeshapes.adopt import FULL_HEADER
from moeshapes.findings import Finding
from moeshapes.rules import lint_rows
from moeshapes.runtime.version import Version
from moeshapes.table import parse_table, read_table, read_tuned_rows, read_untuned_rows
from table_text import line, table

A4W4 = {"q_dtype_a": "torch.float4_e2m1fn_x2"}
A16W4 = {"q_dtype_a": "torch.bfloat16"}
FP8 = {"q_dtype_w": "torch.float8_e4m3fn"}
BLOCK = {**FP8, "q_type": "QuantType.per_1x128"}
FNUZ = {
    "gfx": "gfx942",
    "cu_num": "304",
    "q_dtype_a": "torch.float8_e4m3fnuz",
    "q_dtype_w": "torch.float8_e4m3fnuz",
    "q_type": "QuantType.per_1x128",
}
CKTILE = "swiglu_mxfp4_bf16_cktile"
PS = "_ZN5aiter{}fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256E"


def dims(model_dim: int, inter_dim: int, expert: int, topk: int) -> dict[str, str]:
    return {"model_dim": str(model_dim), "inter_dim": str(inter_dim), "expert": str(expert), "topk": str(topk)}


def lint(*rows: dict[str, str], version: Version | None = None) -> list[Finding]:
    """What is found in a table of these rows; row n stands at line n + 2."""
    found = table(*(line(**cells) for cells in rows))
    return [*found.findings, *lint_rows(read_tuned_rows(found), version=version)]


def lines(findings: list[Finding], rule: str) -> list[int]:
    return [finding.place.line for finding in findings if finding.rule.id == rule]


def message(findings: list[Finding], rule: str) -> str:
    (found,) = (finding.message for finding in findings if finding.rule.id == rule)
    return found


def test_c01_the_only_bucket_with_a_swizzle_is_named_and_is_no_error() -> None:
    names = {"2": "t32x128x256_gui_fp8", "4": "t32x128x256_w2_gui_xcd4_fp8", "8": "t32x64x256_w3_gui_fp8"}
    rows = [
        {**dims(7168, 512, 384, 6), "token": token, "kernelName1": f"flydsl_moe1_afp8_wfp4_bf16_{name}", "us": us}
        for (token, name), us in zip(names.items(), ("30.1", "37.9915", "44.2"), strict=True)
    ]
    found = [finding for finding in lint(*rows) if finding.rule.id == "MOE174"]
    assert [finding.message for finding in found] == [
        "bucket 4 alone has stage-1 variant xcd4; its neighbours have none"
    ]
    assert found[0].rule.severity.value == "info"


@pytest.mark.parametrize(("inter_dim", "safe"), [(128, 0), (256, 1), (384, 0), (512, 1), (640, 0), (768, 1)])
def test_c06_cktile_reads_scales_of_whole_256_columns_only(inter_dim: int, safe: int) -> None:
    shape = {**dims(6144, inter_dim, 129, 5), **A16W4, "act_type": "ActivationType.Swiglu", "token": "32"}
    assert bool(lines(lint({**shape, "kernelName1": CKTILE, "kernelName2": CKTILE}), "MOE320")) is not bool(safe)
    flydsl = {**dims(6144, 384, 129, 5), "kernelName2": "flydsl_moe2_afp8_wfp4_bf16_t32x128x128_atomic"}
    assert not {"MOE310", "MOE311", "MOE320"} & {finding.rule.id for finding in lint(flydsl)}


def test_c07_twelve_of_sixteen_buckets_are_over_the_limit() -> None:
    errors = ("18.9%", "19.1%", "19.4%", "19.4%", "20.1%", "20.9%", "20.1%", "0.0%", "0", "0.0")
    rows = [{**dims(7168, 384, 384, 6), "token": str(1 << n), "err2": err} for n, err in enumerate(errors)]
    assert lines(lint(*rows), "MOE163") == [2, 3, 4, 5, 6, 7, 8]


def test_c07_the_limits_do_not_flag_what_is_usual_for_a_family(aiter_configs: Path) -> None:
    paths = [path for path in aiter_configs.rglob("*tuned_fmoe*.csv") if "untuned" not in path.name]
    rows = [row for path in sorted(paths) for row in read_tuned_rows(read_table(path))]
    high = [finding for finding in lint_rows(rows) if finding.rule.id == "MOE163"]
    assert len(high) == 24, "256 rows have an error of 15 % or more, nearly all of CK's block-scale stage 2"


def test_c12_wrong_activation_parameters_show_as_errors_of_35_percent() -> None:
    shape = {**dims(3584, 512, 896, 16), **A16W4, "act_type": "ActivationType.Situv2"}
    kernel = "flydsl_moe1_abf16_wfp4_bf16_t32x32x256_w3_xcd1_kw2"
    rows = [
        {**shape, "token": token, "kernelName1": kernel, "err1": err}
        for token, err in (("1", "34.7%"), ("2", "35.4%"), ("4", "35.8%"), ("8", "0.0%"))
    ]
    assert lines(lint(*rows), "MOE163") == [2, 3, 4]


def test_c14_a_proposed_row_is_doubted_for_all_that_is_odd_about_it() -> None:
    own = {**FNUZ, "cu_num": "80", "q_type": "QuantType.per_Token", **dims(2048, 128, 257, 9)}
    row = {
        **own,
        "token": "1",
        "block_m": "16",
        "kernelName1": "impl__flydsl_gfx942__16_16_16_False",
        "err1": "46.53%",
        "err2": "0%",
        "us1": "7.453785714285916",
        "us2": "4",
        "us": "11.453785714285916",
        "tflops": "0.0",
        "bw": "0.0",
    }
    found = lint(row)
    severities = {finding.rule.id: finding.rule.severity.value for finding in found}
    assert {"MOE163": "error", "MOE161": "warning", "MOE158": "info", "MOE301": "info"}.items() <= severities.items()
    assert "cannot check" in message(found, "MOE301")
    (missing,) = [finding.remedy for finding in found if finding.rule.id == "MOE161"]
    assert missing.startswith("Write what the key and us give, tflops ")
    assert "or leave a row that was published so" in missing


def test_c15_the_sorted_blocks_of_both_kernels_are_block_m() -> None:
    first = "flydsl_moe1_afp8_wfp4_bf16_t{}x256x256_w2_bnt0_gui_fp8"
    for tile1, stage2, block_m, wrong in (
        ("128", "t64x128x256_atomic", "128", True),
        ("128", "t64x256x256_atomic_sbm128", "128", False),
        ("128", "t64x128x128_reduce_sbm128", "128", False),
        ("32", "t16x128x256_atomic_sbm32", "32", False),
        ("64", "t64x256x256_atomic_sbm128", "128", True),
    ):
        names = {"kernelName1": first.format(tile1), "kernelName2": f"flydsl_moe2_afp8_wfp4_bf16_{stage2}"}
        row = {**dims(7168, 3072, 48, 6), **names, "token": "32768", "block_m": block_m}
        assert bool(lines(lint(row), "MOE304")) is wrong


def test_c21_a_row_re_keyed_to_another_shape_is_not_measured_for_it() -> None:
    rows = [{**A4W4, **dims(7168, 256, expert, topk)} for expert, topk in ((257, 9), (256, 8))]
    assert lines(lint(*rows), "MOE155")


def test_c32_rows_copied_to_other_tokens_are_not_measured() -> None:
    rows = [{**dims(4096, 256, 288, 8), **BLOCK, "token": token} for token in ("64", "128", "256", "512")]
    assert lines(lint(*rows), "MOE154") == [2, 3, 4, 5]


def test_c34_c37_tokens_that_no_call_looks_up() -> None:
    tokens = ("32", "64", "96", "192", "384", "576", "768", "32768", "65536", "131072")
    found = lint(*({"token": token} for token in tokens))
    assert [tokens[number - 2] for number in lines(found, "MOE170")] == ["96", "192", "384", "576", "768", "65536"]
    remedies = [finding.next_step for finding in found if finding.rule.id == "MOE170"]
    assert remedies[3] == "Tune 1024 instead."


def test_c40_rows_cloned_to_another_number_of_compute_units() -> None:
    shape = dims(2048, 128, 256, 8)
    assert lines(lint(*({**shape, "gfx": "gfx1201", "cu_num": cu} for cu in ("32", "64"))), "MOE156") == [2, 3]
    measured = [{**shape, "cu_num": "32"}, {**shape, "cu_num": "64", "us1": "39", "us": "59.25"}]
    assert lines(lint(*measured), "MOE156") == []


def test_c42_an_architecture_without_facts_is_judged_by_what_needs_none() -> None:
    own = {**FNUZ, "gfx": "gfx90a", "cu_num": "104", "q_dtype_a": "torch.int8", "q_dtype_w": "torch.int8"}
    found = lint({**own, "us1": "0.5", "us2": "0.5", "us": "1"})
    assert not {"MOE151", "MOE152", "MOE153"} & {finding.rule.id for finding in found}
    legacy = tuple(column for column in FULL_HEADER if column != "gfx")
    (unknown,) = table(line(legacy, cu_num="104"), header=legacy).findings
    assert unknown.rule.id == "MOE123"


def test_c59_only_the_outliers_of_a_family_with_high_errors_are_flagged() -> None:
    shape = {**FNUZ, **dims(7168, 2048, 33, 9), "block_m": "16"}
    asm = "_ZN5aiter59fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_16x256_2tg_pf3E"
    ck = "moe_ck2stages_gemm2_256x16x128x128_1x4_MulABScaleExpertWeightA8W8blkscale_v1_Nswizzle0_Quant4_"
    ck += "MulRoutedWeight1_F8_F8_B16"
    errors = (("20.0%", "15.7%"), ("24.7%", "17.2%"), ("17.5%", "16.6%"), ("5.9%", "16.8%"))
    rows = [
        {**shape, "token": str(1 << n), "kernelName1": asm, "kernelName2": ck, "err1": err1, "err2": err2}
        for n, (err1, err2) in enumerate(errors)
    ]
    assert lines(lint(*rows), "MOE163") == [2, 3, 4]


def test_c60_a_column_of_another_name_is_named_and_nothing_is_filled_in() -> None:
    header = tuple("total_us" if column == "us" else column for column in FULL_HEADER)
    found = table(line(), header=header)
    (finding,) = found.findings
    assert (finding.rule.id, finding.next_step) == ("MOE105", "Rename it to `us`.")
    assert read_tuned_rows(found) == []


def test_c63_a_missing_trailing_tag_is_told_from_a_lost_value() -> None:
    short = line().removesuffix(",")
    found = table(short, line().replace(",0.9%", ""))
    assert [finding.rule.id for finding in found.findings] == ["MOE111", "MOE112"]
    assert len(read_tuned_rows(found)) == 1


def test_c64_a_wrong_length_prefix_is_corrected() -> None:
    row = {**dims(7168, 256, 257, 9), **BLOCK, "token": "16384", "run_1stage": "1", "kernelName2": ""}
    (finding,) = [f for f in lint({**row, "kernelName1": PS.format(50)}) if f.rule.id == "MOE305"]
    assert finding.next_step == f"Write `{PS.format(52)}`."
    assert lines(lint({**row, "kernelName1": PS.format(52)}), "MOE305") == []


def test_c68_an_override_of_zeros_is_no_measurement() -> None:
    kernel = "_ZN5aiter48fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x128E"
    zeros = dict.fromkeys(("us1", "us2", "us", "tflops", "bw"), "0.0")
    row = {**FNUZ, "cu_num": "80", **dims(2048, 128, 256, 8), "q_type": "QuantType.per_Token", **zeros}
    found = lint({**row, "kernelName1": kernel, "kernelName2": "Null", "run_1stage": "1", "err1": "0.0%"})
    assert [finding.rule.id for finding in found] == ["MOE120"], "it is not read, and `Null` is no fault"


def test_c70_the_documented_spellings_are_named_with_aiters() -> None:
    untuned = (
        "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1\n"
        "1024,4096,14336,8,2,ActivationType.Silu,dtypes.bf16,dtypes.fp8,dtypes.fp8,QuantType.per_Token,True,True\n"
    )
    found = parse_table(untuned.encode(), "a_untuned_fmoe.csv")
    assert {finding.rule.id for finding in found.findings} == {"MOE121"}
    remedies = [finding.next_step for finding in found.findings]
    either = "Write torch.float8_e4m3fnuz on gfx942, torch.float8_e4m3fn on gfx950."
    assert remedies == ["Write `torch.bfloat16`.", either, either, "Write `1`.", "Write `1`."]
    assert read_untuned_rows(found) == []


def test_c72_a_name_that_no_registry_has_cannot_be_confirmed() -> None:
    row = {**A4W4, **dims(7168, 256, 257, 9), "block_m": "16"}
    found = lint({**row, "kernelName1": "flydsl_moe1_afp4_wfp4_bf16_t16x128x256_w3_kb7_bnt0_go_fp4"})
    problems = [finding.message for finding in found if finding.rule.id == "MOE312"]
    assert len(problems) == 2
    assert all(problem.startswith("cannot confirm kernelName1") for problem in problems)
    assert problems[0].endswith("registers tile M 32, 64, 128, not 16")
    assert not lines(found, "MOE310"), "7168 / 7 is divided by 256"


def test_c73_rows_with_tile_m_16_need_an_aiter_that_has_it() -> None:
    small = {"kernelName1": "flydsl_moe1_afp8_wfp4_bf16_t16x128x256_w3_gui_fp8", "block_m": "16"}
    small["kernelName2"] = "flydsl_moe2_afp8_wfp4_bf16_t16x256x256_atomic"
    rows = ({"token": "16"}, {"token": "32", **small}, {"token": "64", **small}, {"token": "128"})
    assert lines(lint(*rows, version=Version(date(2026, 7, 20))), "MOE322") == [3, 4]
    assert lines(lint(*rows, version=Version(date(2026, 8, 3))), "MOE322") == []
    assert lines(lint(*rows), "MOE322") == []


def test_c77_suffixes_without_effect_are_named() -> None:
    plain = "flydsl_moe2_afp8_wfp4_bf16_t32x128x256_atomic"
    found = lint({"kernelName2": f"{plain}_bnt2_persist"})
    assert message(found, "MOE319").endswith("`_bnt2`, `_persist` changes nothing")
    assert lines(lint({"kernelName2": plain}), "MOE319") == []
    assert lines(lint({**A4W4, "kernelName2": plain.replace("afp8", "afp4") + "_persist"}), "MOE319") == []


def test_c94_tiles_divide_192() -> None:
    bf16 = {"q_dtype_a": "torch.bfloat16", "q_dtype_w": "torch.bfloat16", "q_type": "QuantType.No"}
    stage1 = "moe_ck2stages_gemm1_256x128x{}x64_1x4_TypeCast_v3_Nswizzle0_Quant0_MulRoutedWeight0_silu_B16_B16_B16"
    row = {**dims(4096, 192, 128, 8), **bf16, "token": "32768", "block_m": "128"}
    assert "in multiples of 128, and it is 192" in " ".join(
        finding.message for finding in lint({**row, "kernelName1": stage1.format(128)}) if finding.rule.id == "MOE310"
    )
    assert not [
        f
        for f in lint({**row, "kernelName1": stage1.format(64)})
        if "kernelName1" in f.message and f.rule.id == "MOE310"
    ]


def test_c96_mx_kernels_need_tiles_that_divide_704() -> None:
    row = {**A4W4, **dims(2048, 704, 60, 4)}
    names = {"kernelName1": "flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2"}
    names["kernelName2"] = "flydsl_moe2_afp4_wfp4_bf16_t32x128x256_atomic"
    assert lines(lint({**row, **names}), "MOE310") == [2, 2]
    assert lines(lint({**row, **names, "inter_dim": "768"}), "MOE310") == []
