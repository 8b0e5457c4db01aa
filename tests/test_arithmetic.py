"""What kernel names state about rounding, by names of AITER's tables (contract 4, 6.2, 3.4 and 3.6)."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from moeshapes.arithmetic import Arithmetic, Departure, arithmetic_of, default_arithmetic
from moeshapes.recipe import RECIPES, recipe_of
from moeshapes.row import LAUNCH_COLUMNS

NO_LIMIT, NO_BIAS, SILU = Departure.LIMIT_IGNORED, Departure.BIAS_DROPPED, Departure.ALWAYS_SILU
NEITHER = (NO_LIMIT, NO_BIAS)
CK = "moe_ck2stages_gemm"
CK_1 = f"{CK}1_256x32x64x128_1x4_MulABScale_v1_Nswizzle0_Quant2_MulRoutedWeight0_silu_F8_F8_B16"
CK_2 = f"{CK}2_256x32x64x128_1x4_MulABScaleExpertWeight_v1_Nswizzle0_Quant2_MulRoutedWeight1_F8_F8_B16"
CK_1_FP4 = f"{CK}1_256x128x128x128_1x4_MulABScaleShuffled_v3_Nswizzle0_Quant3_MulRoutedWeight0_silu_FP4X2_FP4X2_B16"
CK_2_FP4 = f"{CK}2_64x32x32x128_1x1_MulABScaleExpertWeightShuffled_v1_Nswizzle0_Quant3_MulRoutedWeight1_FP4X2_FP4X2_B16"
CK_1_BF16 = f"{CK}1_256x32x64x64_1x4_TypeCast_v1_Nswizzle0_Quant0_MulRoutedWeight0_gelu_B16_B16_B16"
CK_2_BF16 = f"{CK}2_256x32x64x64_1x4_TypeCastExpertWeight_v1_Nswizzle0_Quant0_MulRoutedWeight1_B16_B16_B16"
A8W4_1, A8W4_2 = "flydsl_moe1_afp8_wfp4_bf16_t32x64x256_gui", "flydsl_moe2_afp8_wfp4_bf16_t32x128x256"
A4W4_1, A4W4_2 = "flydsl_moe1_afp4_wfp4_bf16_t32x32x256", "flydsl_moe2_afp4_wfp4_bf16_t32x256x256"
A8W8_2, A16W4_2 = "flydsl_moe2_afp8_wfp8_bf16_t32x128x256", "flydsl_moe2_abf16_wfp4_bf16_t32x128x128"
LAYOUT = "flydsl_moe2_layout_afp8_wfp4_bf16_t32x128x256"
OPUS_1, OPUS_2 = "opus_moe1_afp8_wfp4_bf16_t32x384_pair_kw7_m3_fp8", "opus_moe2_afp8_wfp4"
OPUS_2_FP8 = f"{OPUS_2}_fp8_t64x256x256_sbm64_rbn3584"
MX_1, MX_2 = "flydsl_mxmoe_g1_a4w4_32x256x256", "flydsl_mxmoe_g2_a4w4"
ASM_1 = "_ZN5aiter47fmoe_stage1_bf16_pertokenFp8_g1u1_32x64_4tg_pf3E"
ASM_1_BLOCK = "_ZN5aiter59fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_16x256_2tg_pf3E"
ASM_1_INT8 = "_ZN5aiter49fmoe_stage1_bf16_pertokenInt8_g1u1_64x128_2tg_pf3E"
ONE_STAGE = "_ZN5aiter50fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_ps_32x256E"
MXMOE = (*NEITHER, SILU)
FUSED = Arithmetic(32, "fp32", fused_scale=True)


def launch(first: str, second: str, one_stage: bool = False, block_m: int = 32) -> dict[str, Any]:
    values = (block_m, 0, first, second, int(one_stage), 0, 0)
    return dict(zip(LAUNCH_COLUMNS, values, strict=True))


@pytest.mark.parametrize(
    ("recipe", "first", "second", "expected"),
    [
        # FlyDSL: a separate quantiser unless the name says otherwise
        ("a8w4", A8W4_1, f"{A8W4_2}_atomic", Arithmetic(32)),
        ("a8w4", A8W4_1, f"{A8W4_2}_reduce_bnt2_persist", Arithmetic(32, combine="reduce")),
        ("a8w4", f"{A8W4_1}_kw2_fp8", f"{A8W4_2}_atomic", FUSED),
        ("a8w4", f"{A8W4_1}_fp8", f"{A8W4_2}_reduce", Arithmetic(32, "fp32", True, "reduce")),
        ("a4w4", f"{A4W4_1}_w4_kw2_fp4", f"{A4W4_2}_atomic", FUSED),
        ("a4w4", f"{A4W4_1}_w2", f"{A4W4_2}_atomic", Arithmetic(32)),
        (
            "mxfp8", "flydsl_moe1_afp8_wfp8_bf16_t32x64x256_gui_xcd4_kw2_fp8", f"{A8W8_2}_reduce",
            Arithmetic(32, "fp32", True, "reduce", departures=(NO_BIAS,)),
        ),
        # 16-bit activations: nothing is quantised between the stages, and `reduce` is ignored
        (
            "a16w4", "flydsl_moe1_abf16_wfp4_bf16_t32x32x256_w3_xcd1_kw2", f"{A16W4_2}_reduce",
            Arithmetic(32, departures=NEITHER),
        ),
        (
            "a16wi4", "flydsl_moe1_abf16_wint4_bf16_t16x16x256_kw4", "flydsl_moe2_abf16_wint4_bf16_t16x128x256_atomic",
            Arithmetic(32, departures=NEITHER),
        ),
        # a layout stage 2 makes stage 1 quantise even where its name does not say so, and drops bias 2
        ("a8w4", A8W4_1, f"{LAYOUT}_atomic_sbm32", Arithmetic(32, "fp32", True, departures=(NO_BIAS,))),
        ("a8w4", f"{A8W4_1}_fp8", f"{LAYOUT}_reduce_nt", Arithmetic(32, "fp32", True, "reduce", departures=(NO_BIAS,))),
        # mxmoe: fp32, the quantiser's own rule; SiLU without limit or bias
        ("a4w4", MX_1, f"{MX_2}_32x256x256_atomic", Arithmetic(32, "fp32", departures=MXMOE)),
        ("a4w4", MX_1, f"{MX_2}_32x256x256_cshuffle", Arithmetic(32, "fp32", False, "reduce", departures=MXMOE)),
        ("a4w4", MX_1, f"{MX_2}_128x256x256", Arithmetic(32, "fp32", False, "reduce", departures=MXMOE)),
        (
            "a4w4", MX_1, f"{MX_2}_128x256x256_f4out",
            Arithmetic(32, "fp32", False, "reduce", modelled=False, departures=MXMOE),
        ),
        # CK and asm stage 1
        ("fp8_token", CK_1, CK_2, Arithmetic(32, departures=NEITHER)),
        ("bf16", CK_1_BF16, CK_2_BF16, Arithmetic(32, departures=NEITHER)),
        ("fp8_token", ASM_1, CK_2, Arithmetic(32, departures=NEITHER)),
        ("fp8_tensor", ASM_1, CK_2, Arithmetic(32, departures=NEITHER)),
        ("int8", ASM_1_INT8, CK_2, Arithmetic(32, departures=NEITHER)),
        ("fp8_block", ASM_1_BLOCK, CK_2, Arithmetic(32, "fp32", departures=NEITHER)),
        ("fp8_block", CK_1, CK_2, Arithmetic(32, departures=NEITHER)),
        # mixed pairs: a limit is stage 1's business
        ("a4w4", CK_1_FP4, f"{A4W4_2}_reduce_persist_sbm128", Arithmetic(32, combine="reduce", departures=NEITHER)),
        ("a4w4", f"{A4W4_1}_w4_kw4_fp4", CK_2_FP4, Arithmetic(32, "fp32", True, departures=(NO_BIAS,))),
        # opus: stage 2 may store slots as fp8; its rounding is not modelled
        ("a8w4", OPUS_1, f"{OPUS_2}_atomic_t32x128x256_sbm32_occ1_ws2", Arithmetic(32, "fp32", modelled=False)),
        ("a8w4", OPUS_1, f"{OPUS_2}_bf16_t64x256x256_sbm64", Arithmetic(32, "fp32", False, "reduce", modelled=False)),
        ("a8w4", f"{A8W4_1}_fp8", OPUS_2_FP8, Arithmetic(32, "fp32", True, "reduce", 8, modelled=False)),
        ("a8w4", OPUS_1, f"{A8W4_2}_atomic", Arithmetic(32, "fp32", modelled=False)),
        # labels do not name a kernel
        ("a8w4", f"{A8W4_1}_fp8", "cktile_a8w4_bm32", Arithmetic(32, "fp32", True, modelled=False)),
        ("a8w4", "cktile_a8w4_bm64", OPUS_2_FP8, Arithmetic(32, "bf16", False, "reduce", 8, modelled=False)),
        ("a16w4", *["swiglu_mxfp4_bf16_cktile"] * 2, Arithmetic(32, modelled=False, departures=(NO_LIMIT,))),
        # names that are none
        ("a8w4", "", "", Arithmetic(32, modelled=False)),
        ("a8w4", "impl__flydsl_gfx942__16_16_16_False", f"{A8W4_2}_atomic", Arithmetic(32, modelled=False)),
        ("a8w4", A8W4_1, "impl__flydsl_gfx942__16_16_16_False", Arithmetic(32, modelled=False)),
    ],
)  # fmt: skip
def test_two_stages(recipe: str, first: str, second: str, expected: Arithmetic) -> None:
    assert arithmetic_of(launch(first, second), RECIPES[recipe]) == expected


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        ("fp8_block", ONE_STAGE),
        ("fp8_token", "_ZN5aiter45fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x192E"),
        ("a4w4", "_ZN5aiter50fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x128E"),
    ],
)
def test_one_stage_is_not_modelled(recipe: str, name: str) -> None:
    expected = Arithmetic(32, intermediate_from="fp32", modelled=False, departures=NEITHER)
    assert arithmetic_of(launch(name, "", one_stage=True), RECIPES[recipe]) == expected


@pytest.mark.parametrize(("block_m", "expected"), [(0, 1), (1, 1), (16, 16), (128, 128)])
def test_rows_of_a_tile_are_the_rows(block_m: int, expected: int) -> None:
    assert arithmetic_of(launch(A8W4_1, f"{A8W4_2}_atomic", block_m=block_m), RECIPES["a8w4"]).block_m == expected


@pytest.mark.parametrize(
    ("recipe", "block_of_token"),
    [
        ("a8w4", {1: 32, 1024: 32, 2048: 64, 4096: 128, 8192: 128, 16384: 64, 131072: 64}),
        ("a4w4", {1: 32, 2048: 64, 4096: 128, 32768: 64}),
        ("mxfp8", {1: 32, 2048: 64, 8192: 128}),
        ("a16wi4", {1: 16, 1024: 16, 2048: 32, 8192: 32, 16384: 64}),
        ("fp8_block", {1: 16, 32: 16, 64: 64, 8192: 64}),
        ("fp8_token", {1: 32, 8192: 32}),
        ("fp8_tensor", {1: 32}),
        ("int8", {64: 32}),
        ("bf16", {1: 32}),
    ],
)
def test_without_a_row_a_separate_quantiser_and_atomics(recipe: str, block_of_token: dict[int, int]) -> None:
    for token, block_m in block_of_token.items():
        assert default_arithmetic(RECIPES[recipe], token) == Arithmetic(block_m), token


def test_departures_say_what_is_wrong() -> None:
    assert len({departure.value for departure in Departure}) == len(Departure)
    assert Arithmetic(1, departures=(SILU,)).as_json()["departures"] == (SILU,)


def tuned_rows(directory: Path) -> list[dict[str, str]]:
    files = [directory / "tuned_fmoe.csv", *sorted((directory / "model_configs").glob("*_tuned_fmoe*.csv"))]
    texts = [path.read_text(encoding="utf-8") for path in files if "untuned" not in path.name]
    return [row for text in texts for row in csv.DictReader(text.splitlines())]


def test_every_published_row_has_an_arithmetic(aiter_configs: Path) -> None:
    """Unmodelled are one-stage, opus, cktile and f4out rows alone; every other name is understood."""
    unmodelled: Counter[str] = Counter()
    rows = tuned_rows(aiter_configs)
    for row in rows:
        recipe = recipe_of(row["q_dtype_a"], row["q_dtype_w"], row["q_type"])
        assert recipe is not None
        second = "" if row["kernelName2"] == "Null" else row["kernelName2"]
        fields = launch(row["kernelName1"], second, row["run_1stage"] == "1", int(row["block_m"]))
        if not arithmetic_of(fields, recipe).modelled:
            unmodelled["one stage" if fields["run_1stage"] else _opaque_word(row["kernelName1"] + second)] += 1
    assert len(rows) == 2402
    assert unmodelled == {"one stage": 391, "opus": 52, "cktile": 44, "f4out": 10}


def _opaque_word(names: str) -> str:
    return next(word for word in ("opus", "cktile", "f4out") if word in names)
