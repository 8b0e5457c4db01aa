from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from moeshapes.recipe import Format
from moeshapes.runtime.call import call_of_key, call_of_use
from moeshapes.runtime.version import CHANGES, SENTINEL_SLOT, Version
from moeshapes.use import Use
from table_text import row

KEY = row().key


def test_a_key_asks_for_itself() -> None:
    assert call_of_key(KEY).key == KEY
    assert call_of_key(KEY, 5).key == KEY
    assert call_of_key(KEY, 9).key.shape.token == 16


def test_a_key_implies_the_gates_that_ask_for_its_format() -> None:
    def gates(**cells: str) -> str:
        return call_of_key(row(**cells).key).gate_mode

    fp4, fp8, bf16 = "torch.float4_e2m1fn_x2", "torch.float8_e4m3fn", "torch.bfloat16"
    assert gates(q_dtype_a=fp8) == "interleave"
    assert gates(q_dtype_a=fp8, q_dtype_w=fp8) == "interleave"
    assert gates(q_dtype_a=bf16) == "interleave"
    assert gates(q_dtype_a=bf16, act_type="ActivationType.Swiglu") == "separated"
    assert gates(q_dtype_a=fp4) == "separated"
    assert gates(q_dtype_a=fp8, q_dtype_w=fp8, q_type="QuantType.per_1x128") == "separated"


def test_formats_of_no_recipe_are_refused() -> None:
    with pytest.raises(ValueError, match="no recipe"):
        call_of_key(row(q_dtype_w="torch.int8").key)


def test_a_use_derives_its_format_and_passes_what_it_says() -> None:
    use = Use("demo/tp4", "target", "a8w4", "silu", gate_mode="interleave", intermediate_pad=64, bias=True, env={})
    call = call_of_use(KEY, use, tokens=100, expert_mask=False)
    assert call.format.format is Format.BF16
    assert (call.intermediate_pad, call.bias) == (0, True)
    assert call_of_use(KEY, replace(use, pads="arguments"), 100, expert_mask=False).intermediate_pad == 64
    assert call_of_use(KEY, replace(use, env={"AITER_BF16_FP8_MOE_BOUND": "0"}), 100, False).format.format is Format.FP8


def test_the_masked_slot_is_not_counted_since_june_2026() -> None:
    masked = replace(call_of_key(KEY), expert_mask=True, topk_width=10)
    assert masked.topk == 9
    assert replace(masked, version=Version(date(2026, 6, 4))).topk == 10
    assert replace(masked, expert_mask=False).topk == 10


def test_the_top_bucket_is_looked_up_since_may_2026() -> None:
    call = call_of_key(KEY, 200_000)
    assert call.bucket == 131072
    assert replace(call, version=Version(date(2026, 5, 8))).bucket == 32768


def test_changes_are_told_in_the_order_of_their_days() -> None:
    assert [change.since for change in CHANGES] == sorted(change.since for change in CHANGES)
    assert Version().rule(SENTINEL_SLOT).endswith("(since 2026-06-05, 7a8ff7dd4a)")
    assert Version(date(2026, 6, 4)).rule(SENTINEL_SLOT).startswith(SENTINEL_SLOT.before)
    assert all(Version().has(change) for change in CHANGES)
