from __future__ import annotations

import pytest

from declared import sound_document
from moeshapes.findings import Finding
from moeshapes.model import Block
from moeshapes.reach import unasked_buckets
from moeshapes.shape import read_shape

SILU = Block(4096, 2048, 8, 2, 0, "silu")
SWIGLU = Block(4096, 2048, 8, 2, 0, "swiglu", swiglu_alpha=1.702, swiglu_limit=7.0)
SITUV2 = Block(4096, 2048, 8, 2, 0, "situv2", situ_beta=4.0, situ_linear_beta=25.0)


def unasked(
    block: Block,
    recipe: str,
    tokens: str,
    more: str = "",
    gpus: str = "[{gfx: gfx950, cu_num: 256}]",
    csv: str = "d_untuned_fmoe.csv",
) -> list[Finding]:
    text = f"model: d\ntp: 1\ncsv: {csv}\ngpus: {gpus}\nrecipe: {recipe}\n{more}\n"
    text += f"moe: [{{block: b, tokens: {tokens}}}]\n"
    shape, findings = read_shape("demo/x", sound_document(text))
    assert not findings
    return list(unasked_buckets(shape, shape.entries[0], block))


@pytest.mark.parametrize(
    ("block", "recipe", "tokens", "more", "buckets", "remedy"),
    [
        (SILU, "a4w4", "1..", "", "", ""),
        (SILU, "fp8_block", "1..", "gate_mode: interleave", "", ""),
        (SILU, "a8w4", "1..", "gate_mode: interleave\nenv: {AITER_BF16_FP8_MOE_BOUND: 0}", "", ""),
        (SILU, "a8w4", "128..512", "gate_mode: interleave", "bucket 128 ", "env: {AITER_BF16_FP8_MOE_BOUND: 0}"),
        (SILU, "a8w4", "[1, 2]", "", "buckets 1, 2 ", "gate_mode: interleave` and `env: {AITER_BF16_FP8_MOE_BOUND: 0}"),
        (SILU, "a8w4", "256..", "", "bucket", "Set `gate_mode: interleave` if"),
        (SILU, "a16w4", "[1, 2]", "", "buckets 1, 2 ", "Set `gate_mode: interleave` if"),
        (SWIGLU, "a4w4", "1..256", "", "buckets 1..128 ", "GPTOSS_SWIGLU_MXFP4_BF16_BOUND: 0"),
        (SWIGLU, "a16w4", "256..512", "", "bucket 512 ", "GPTOSS_SWIGLU_MXFP4_BF16_BOUND: 1048577"),
        (SWIGLU, "mxfp8", "1..", "", "", ""),
        (SITUV2, "a16w4", "1..", "", "", ""),
        (SITUV2, "a8w4", "1", "", "bucket 1 ", "env: {AITER_SITUV2_A8W4: 1}"),
        (SITUV2, "a4w4", "1", "", "bucket 1 ", "env: {AITER_SITUV2_A4W4: 1}"),
        (SITUV2, "a4w4", "1", "env: {AITER_SITUV2_A8W4: 1}", "bucket 1 ", "Choose the recipe"),
    ],
)
def test_what_calls_ask_for(block: Block, recipe: str, tokens: str, more: str, buckets: str, remedy: str) -> None:
    findings = unasked(block, recipe, tokens, more)
    assert [buckets in f.message and remedy in f.remedy for f in findings] == [True] * bool(buckets), findings


def test_each_architecture_is_judged() -> None:
    gpus = "[{gfx: gfx950, cu_num: 256}, {gfx: gfx942, cu_num: 304}, {gfx: gfx942, cu_num: 80}]"
    (finding,) = unasked(SILU, "a8w4", "512", "gate_mode: interleave", gpus)
    assert finding.message.startswith("on gfx942 no call of bucket 512 ")


def test_only_aiter_is_asked() -> None:
    """Rows of the portable kernels are looked up under the recipe's own formats; AITER is on AMD GPUs alone."""
    assert not unasked(SILU, "a8w4", "8", csv="triton_d_untuned_fmoe.csv")
    assert not unasked(SILU, "a8w4", "8", gpus="[{gfx: sm_90, cu_num: 132}]")


def test_tokens_that_no_call_has_are_left_to_another_rule() -> None:
    assert not unasked(SILU, "a8w4", "[512, 3], unreachable: {tokens: 3, note: n}", "gate_mode: interleave")
