"""What is launched, by AITER's order. tests/test_explain.py compares all of it with an independent walk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moeshapes.recipe import Format, QType
from moeshapes.runtime.call import RuntimeCall
from moeshapes.runtime.plan import Plan, Situation, plan
from table_text import row

A8W4 = RuntimeCall(
    8, "gfx950", 256, 6144, 512, 257, 9, "silu", Format.FP4, QType.PER_1X32, gate_mode="interleave", given=Format.FP8
)


def default(**changes: object) -> Plan:
    return plan(Situation(replace(A8W4, **changes), None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bucket", "stage1", "stage2"),
    [
        (1024, "t32x128x256_w2_gui", "t32x128x256_atomic_bnt2"),
        (2048, "t64x128x256_w3_bnt0_gui", "t64x128x256_atomic"),
        (4096, "t128x128x256_w2_bnt0_gui", "t128x128x256_atomic"),
        (8192, "t128x128x256_w2_bnt0_gui", "t128x128x256_atomic"),
        (16384, "t64x128x256_w4_bnt0_gui", "t64x128x256_atomic"),
        (131072, "t64x128x256_w4_bnt0_gui", "t64x128x256_atomic"),
    ],
)
def test_names_of_flydsls_fallback(bucket: int, stage1: str, stage2: str) -> None:
    found = default(tokens=bucket)
    assert found.step == 6
    assert found.names == (f"flydsl_moe1_afp8_wfp4_bf16_{stage1}", f"flydsl_moe2_afp8_wfp4_bf16_{stage2}")


def test_stage_2_has_narrow_steps_where_256_does_not_divide() -> None:
    assert default(inter_dim=384).names[1].startswith("flydsl_moe2_afp8_wfp4_bf16_t32x128x128_")
    assert default(given=Format.FP4, gate_mode="separated").names[0] == "flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2"


def test_each_default_path() -> None:
    assert default(activation="swiglu").step == 4
    assert default(weight=Format.INT4, given=Format.BF16).names[0] == "flydsl_moe1_abf16_wint4_bf16_t16x128x128"
    assert default(activation="swiglu", gate_mode="separated", given=Format.BF16).step == 7
    assert default(env={"AITER_FLYDSL_FORCE": "0"}).step == 8
    assert default(weight=Format.INT8, q_type=QType.PER_TENSOR, given=None).step == 9
    assert default(weight=Format.FP8, q_type=QType.PER_1X128, given=None, tokens=64).step == 2


def test_split_k_of_a_row_can_be_switched_off() -> None:
    tuned = row(ksplit="4")
    assert plan(Situation(A8W4, tuned)).ksplit == 4
    assert plan(Situation(replace(A8W4, env={"AITER_KSPLIT": "-1"}), tuned)).ksplit == 0


def test_mxmoes_own_tile_decides_the_blocks() -> None:
    tuned = row(
        kernelName1="flydsl_mxmoe_g1_a4w4_16x256x256_f16in_nt",
        kernelName2="flydsl_mxmoe_g2_a4w4_16x256x256_atomic",
        block_m="64",
    )
    found = plan(Situation(replace(A8W4, given=Format.FP4), tuned))
    assert (found.step, found.block_m) == (1, 16)
