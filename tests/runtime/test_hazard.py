"""Every hazard is found where it is, and a sound call has none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moeshapes.recipe import Format, QType
from moeshapes.rule import Severity
from moeshapes.runtime.call import RuntimeCall
from moeshapes.runtime.hazard import remarks
from moeshapes.runtime.plan import Situation, plan
from table_text import row

A8W4 = RuntimeCall(
    8, "gfx950", 256, 6144, 512, 257, 9, "silu", Format.FP4, QType.PER_1X32, gate_mode="interleave", given=Format.FP8
)
A4W4 = replace(A8W4, gate_mode="separated", given=Format.FP4)
A16W4 = replace(A8W4, gate_mode="separated", given=Format.BF16)
BLOCKS = replace(A8W4, weight=Format.FP8, q_type=QType.PER_1X128, gate_mode="separated")
BF16 = replace(BLOCKS, weight=Format.BF16, q_type=QType.NO, given=Format.BF16)
INT4 = replace(A16W4, weight=Format.INT4)
SITUV2 = replace(A16W4, activation="situv2")
SWIGLU = replace(A16W4, activation="swiglu")

FLYDSL = ("flydsl_moe1_afp8_wfp4_bf16_t32x128x256_gui_fp8", "flydsl_moe2_afp8_wfp4_bf16_t32x128x256_atomic")
PORT = ("flydsl_moe1_abf16_wfp4_bf16_t16x128x128", "flydsl_moe2_abf16_wfp4_bf16_t16x128x128_atomic")
MXMOE = ("flydsl_mxmoe_g1_a4w4_16x256x256_f16in_nt", "flydsl_mxmoe_g2_a4w4_16x256x256_atomic")
OPUS = ("opus_moe1_afp8_wfp4_bf16_t32x64_pair_kw2_m1", FLYDSL[1])
LABEL = ("cktile_a8w4_bm64", "opus_moe2_afp8_wfp4_fp8_t64x256x256_sbm64_rbn3072")
SWIGLU_LABEL = ("swiglu_mxfp4_bf16_cktile", "swiglu_mxfp4_bf16_cktile")
_CK = "256x32x64x64_1x4_TypeCast_v1_Nswizzle0_Quant0_MulRoutedWeight"
CK = (f"moe_ck2stages_gemm1_{_CK}0_silu_B16_B16_B16", f"moe_ck2stages_gemm2_{_CK}1_B16_B16_B16")
ASM = ("_ZN5aiter48fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tg_32x256E", "")
ASM1 = ("_ZN5aiter48fmoe_stage1_bf16_pertokenFp8_g1u1_32x256_2tg_pf3E", CK[1])


def found(call: RuntimeCall, kernels: tuple[str, str] | None = None, **cells: str) -> list[tuple[str, str]]:
    """(severity, text) of all remarks; `kernels` are the row's."""
    one_stage = {"run_1stage": "1"} if kernels and not kernels[1] else {}
    named = {**one_stage, "kernelName1": kernels[0], "kernelName2": kernels[1]} if kernels else {}
    situation = Situation(call, row(**named, **cells) if kernels else None)
    return [(remark.severity.value, remark.text) for remark in remarks(situation, plan(situation))]


@pytest.mark.parametrize(
    ("call", "kernels"),
    [
        (A8W4, FLYDSL),
        (A8W4, OPUS),
        (A4W4, MXMOE),
        (SWIGLU, SWIGLU_LABEL),
        (BF16, CK),
        (BLOCKS, ASM),
        (SITUV2, PORT),
        (BF16, None),
        (INT4, None),
        (replace(BLOCKS, tokens=64), None),
    ],
)
def test_sound_calls_have_no_remark(call: RuntimeCall, kernels: tuple[str, str] | None) -> None:
    assert found(call, kernels) == []


@pytest.mark.parametrize(
    ("severity", "words", "call", "kernels"),
    [
        ("warning", "a label that is no kernel", A8W4, LABEL),
        ("warning", f"names `{LABEL[1]}`, which does not run", A8W4, LABEL),
        ("error", "assembly has no kernel", replace(A8W4, doweight_stage1=True), LABEL),
        ("error", "because FlyDSL cannot be imported", replace(A8W4, flydsl=False), FLYDSL),
        ("error", "there is no gelu kernel", replace(BLOCKS, activation="gelu"), ASM),
        ("warning", "CK finds none for gelu", replace(BF16, activation="gelu"), CK),
        ("error", "computes silu whatever the activation", replace(A4W4, activation="swiglu"), MXMOE),
        ("error", "computes silu for gelu", replace(A8W4, activation="gelu"), FLYDSL),
        ("error", "has no swiglu", SWIGLU, PORT),
        ("error", "no expert mask", replace(A4W4, expert_mask=True), MXMOE),
        ("error", "sort is not compiled for 128 experts", replace(A4W4, expert=128), MXMOE),
        ("error", "ignores the bias of stage 1", replace(A4W4, bias=True), MXMOE),
        ("error", "ignores the bias of stage 2", replace(BF16, bias=True), CK),
        ("error", "ignores the bias of stage 1", replace(INT4, bias=True), None),
        ("warning", "swiglu_limit 10 is ignored by flydsl_mxmoe_g1", replace(A4W4, swiglu_limit=10.0), MXMOE),
        (
            "error",
            "refuses situv2 with bf16 activations with a bias",
            replace(A16W4, activation="situv2", bias=True),
            None,
        ),
        ("error", "reads gate and up as `interleave`", replace(A8W4, gate_mode="separated"), FLYDSL),
        ("error", "reads gate and up as `separated`", replace(A16W4, gate_mode="interleave"), PORT),
        ("warning", "inter_dim 640: 128 runs instead", replace(A8W4, inter_dim=640), FLYDSL),
        ("error", "nor does 128", replace(A8W4, inter_dim=704), FLYDSL),
        ("error", "a crash is expected: the columns of 128", replace(SITUV2, inter_dim=704), PORT),
        ("warning", "reduces instead", replace(A8W4, tokens=400_000), FLYDSL),
        ("warning", "AITER_FLYDSL_FORCE_REDUCE", replace(A8W4, env={"AITER_FLYDSL_FORCE_REDUCE": "1"}), FLYDSL),
        ("warning", "tuned kernels read shuffled weights", replace(A8W4, shuffled=False), FLYDSL),
        ("error", "does not apply the routing weight", replace(A8W4, doweight_stage1=True), OPUS),
        ("error", "misreads scales", replace(SWIGLU, inter_dim=384), None),
        ("error", "misreads scales", replace(SWIGLU, gate_mode="interleave", inter_dim=640), None),
        ("error", "no instance for bf16 activations x fp4", replace(A16W4, gate_mode="interleave"), None),
        ("error", "no instance for fp8 activations x fp4", replace(A8W4, shuffled=False), None),
        ("error", "no instance for fp8 activations x fp4", replace(A8W4, flydsl=False), None),
        ("warning", "where is_shuffled is lost", A8W4, None),
        ("warning", "grouped kernels", replace(A8W4, gfx="gfx1250"), None),
        ("warning", "tunes this key", replace(BF16, env={"AITER_ONLINE_TUNE": "1"}), None),
        ("error", "no multiple of the scale's block", replace(BLOCKS, inter_dim=192), ASM),
    ],
)
def test_each_hazard(severity: str, words: str, call: RuntimeCall, kernels: tuple[str, str] | None) -> None:
    assert any(severity == level and words in text for level, text in found(call, kernels)), found(call, kernels)


def test_biases_that_are_used() -> None:
    assert found(replace(A8W4, bias=True), FLYDSL) == []
    assert found(replace(SWIGLU, bias=True), None) == []
    mxfp8 = replace(A8W4, weight=Format.FP8, bias=True)
    assert all("ignores the bias" not in text for _, text in found(mxfp8))
    named = ("flydsl_moe1_afp8_wfp8_bf16_t32x128x256_gui_fp8", "flydsl_moe2_afp8_wfp8_bf16_t32x128x256_atomic")
    assert any("ignores the bias of stage 1" in text for _, text in found(mxfp8, named))


def test_limits_that_are_used() -> None:
    assert found(replace(A8W4, swiglu_limit=10.0), FLYDSL) == []
    assert found(replace(SWIGLU, swiglu_limit=7.0), None) == []
    assert any("swiglu_limit 9" in text for _, text in found(replace(SWIGLU, swiglu_limit=9.0), None))


def test_an_assembly_stage_1_takes_the_activation_as_an_argument() -> None:
    token_scales = replace(BLOCKS, q_type=QType.PER_TOKEN, activation="gelu")
    assert all(level != Severity.ERROR.value for level, _ in found(token_scales, ASM1))


def test_errors_come_first() -> None:
    levels = [level for level, _ in found(replace(A8W4, gate_mode="separated", inter_dim=640), FLYDSL)]
    assert levels == sorted(levels)
    assert levels[0] == "error"
