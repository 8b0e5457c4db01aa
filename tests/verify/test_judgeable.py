"""Rows that can be read and not judged, each for a reason of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moeshapes.findings import Place
from moeshapes.row import Key, TunedRow, UntunedRow
from moeshapes.verify.judgeable import LARGEST_BLOCK_M, why_not_judged
from moeshapes.verify.plan import undeclared_use

SHAPE = UntunedRow(
    token=8,
    model_dim=512,
    inter_dim=256,
    expert=8,
    topk=2,
    act_type="ActivationType.Silu",
    dtype="torch.bfloat16",
    q_dtype_a="torch.float4_e2m1fn_x2",
    q_dtype_w="torch.float4_e2m1fn_x2",
    q_type="QuantType.per_1x32",
    use_g1u1=1,
    doweight_stage1=0,
)
ROW = TunedRow(
    key=Key("gfx950", 256, SHAPE),
    tag="",
    block_m=32,
    ksplit=0,
    us1=1.0,
    kernel1="flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2",
    err1="0",
    us2=1.0,
    kernel2="flydsl_moe2_afp4_wfp4_bf16_t32x128x256_reduce",
    err2="0",
    us=2.0,
    run_1stage=False,
    xbf16=0,
    flat=0,
    tflops="0",
    bw="0",
    place=Place("x_tuned_fmoe.csv", 2),
)


def reason(row: TunedRow) -> str:
    use, why = undeclared_use(row.key)
    assert why == ""
    return why_not_judged(row, use)


def shaped(**changes: object) -> TunedRow:
    return replace(ROW, key=replace(ROW.key, shape=replace(SHAPE, **changes)))  # type: ignore[arg-type]


def test_a_sound_row_is_judged() -> None:
    assert reason(ROW) == ""
    assert reason(replace(ROW, block_m=LARGEST_BLOCK_M)) == ""


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (replace(ROW, kernel1="lies", kernel2=""), "it is not known what `lies` computes"),
        (replace(ROW, kernel2="impl__unheard"), "it is not known what `impl__unheard` computes"),
        (replace(ROW, kernel1=""), "names no kernel for stage 1"),
        (replace(ROW, block_m=16777216), "block_m 16777216"),
        (shaped(act_type="ActivationType.No"), "ActivationType.No is no activation"),
        (shaped(topk=9), "topk 9 of 8 experts"),
        (shaped(inter_dim=200), "inter_dim is no multiple of a4w4's scale block, 32"),
        (shaped(model_dim=1, inter_dim=1), "model_dim and inter_dim"),
    ],
)
def test_what_cannot_be_judged_says_why(row: TunedRow, expected: str) -> None:
    assert expected in reason(row)
