from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from declared import sound_document
from moeshapes.findings import Finding
from moeshapes.geometry import Geometry, geometry
from moeshapes.model import Block
from moeshapes.shape import read_shape

DEEPSEEK = Block(7168, 2048, 256, 8, 1, "silu")


def dims(block: Block, recipe: str = "fp8_token", entry: str = "", **keys: object) -> tuple[Geometry, list[Finding]]:
    """The geometry of a block served with these keys; `entry` is more of its item in `moe`."""
    text = {
        "model": "demo",
        "tp": 1,
        "csv": "d_untuned_fmoe.csv",
        "gpus": "[{gfx: gfx950, cu_num: 256}]",
        "recipe": recipe,
    }
    lines = [f"{key}: {value}" for key, value in {**text, **keys}.items()]
    lines += [f"moe: [{{block: target, tokens: 1{', ' if entry else ''}{entry}}}]"]
    shape, findings = read_shape("demo/x", sound_document("\n".join(lines) + "\n"))
    assert not findings
    return geometry(shape, shape.entries[0], block)


def row(block: Block, recipe: str = "fp8_token", entry: str = "", **keys: object) -> str:
    """`model_dim/inter_dim/expert/topk` and the two pads."""
    found, findings = dims(block, recipe, entry, **keys)
    assert not findings
    counts = f"{found.model_dim}/{found.inter_dim}/{found.expert}/{found.topk}"
    return f"{counts} pads {found.hidden_pad} {found.intermediate_pad}"


def faults(block: Block, recipe: str = "fp8_token", entry: str = "", **keys: object) -> list[str]:
    return [finding.rule.name for finding in dims(block, recipe, entry, **keys)[1]]


def test_tensor_parallelism_divides_the_width() -> None:
    assert row(DEEPSEEK, tp=8) == "7168/256/256/8 pads 0 0"


def test_fusion_appends_the_shared_experts() -> None:
    assert row(DEEPSEEK, tp=8, entry="shared_experts: fused") == "7168/256/257/9 pads 0 0"
    assert faults(Block(7168, 2048, 256, 8, 0, "silu"), entry="shared_experts: fused") == ["no-shared-expert"]


def test_expert_parallelism_divides_the_experts_and_not_the_width() -> None:
    assert row(DEEPSEEK, tp=8, ep=8) == "7168/2048/32/8 pads 0 0"
    assert row(DEEPSEEK, ep=8, entry="shared_experts: fused") == "7168/2048/33/9 pads 0 0"
    assert faults(DEEPSEEK, ep=7) == ["does-not-divide"]


def test_padding_rounds_up_and_remembers_by_how_much() -> None:
    gpt_oss = Block(2880, 2880, 128, 4, 0, "swiglu", swiglu_alpha=1.702, swiglu_limit=7.0, bias=True)
    assert row(gpt_oss, "a16w4", pad="{model_dim: 256, inter_dim: 256}") == "3072/3072/128/4 pads 192 192"
    assert row(gpt_oss, "a16w4", tp=8, pad="{model_dim: 256, inter_dim: 256}") == "3072/512/128/4 pads 192 152"
    flash = Block(5120, 2304, 384, 6, 1, "silu")
    assert row(flash, "a8w4", "shared_experts: fused", tp=4, pad="{inter_dim: 128}") == "5120/640/385/7 pads 0 64"


def test_padding_makes_up_for_ranks_that_do_not_divide() -> None:
    odd = Block(4096, 1001, 8, 2, 0, "silu")
    assert faults(odd, tp=4) == ["does-not-divide"]
    assert row(odd, tp=4, pad="{inter_dim: 64}") == "4096/256/8/2 pads 0 5"


def test_a_latent_width_becomes_model_dim() -> None:
    kimi = Block(7168, 3072, 896, 16, 2, "situv2", routed_expert_hidden_size=3584, situ_beta=4.0, situ_linear_beta=25.0)
    assert row(kimi, "a16w4", tp=8) == "3584/384/896/16 pads 0 0"


def test_overrides_are_the_rows_own_columns() -> None:
    entry = "shared_experts: fused, override: {expert: 41, topk: 10, model_dim: 5120, inter_dim: 1536, note: n}"
    assert row(DEEPSEEK, entry=entry) == "5120/1536/41/10 pads 0 0"
    assert faults(DEEPSEEK, entry="override: {expert: 4, note: n}") == ["override-topk"]
    assert faults(DEEPSEEK, entry="override: {inter_dim: 256, note: n}", pad="{inter_dim: 128}") == ["override-and-pad"]
    assert not faults(DEEPSEEK, entry="override: {expert: 37, note: n}", ep=7)
    assert not faults(DEEPSEEK, entry="override: {inter_dim: 320, note: n}", tp=7)


@pytest.mark.parametrize(
    ("width", "recipe", "faulty"),
    [
        (192, "bf16", False),
        (192, "fp8_token", False),
        (160, "fp8_token", True),
        (192, "fp8_block", True),
        (384, "fp8_block", False),
        (384, "a4w4", False),
        (704, "a4w4", True),
        (576, "a8w4", True),
        (192, "mxfp8", True),
        (192, "a16w4", False),
        (96, "a16wi4", True),
    ],
)
def test_widths_that_kernels_take(width: int, recipe: str, faulty: bool) -> None:
    assert faults(Block(4096, width, 8, 2, 0, "silu"), recipe) == ["width"] * faulty


def test_a_width_says_both_dims_and_what_would_fit() -> None:
    _, (finding,) = dims(Block(4096, 1536, 128, 8, 0, "silu"), "fp8_block", tp=8)
    assert "inter_dim 192 % 128 = 64" in finding.message
    assert "model_dim 4096" in finding.message
    assert "tp 1, 2, 3, 4, 6, 12" in finding.remedy
    assert "192 becomes 256" in finding.remedy


@given(
    tp=st.integers(1, 16),
    ep=st.integers(1, 8),
    width=st.integers(1, 64).map(lambda n: n * 96),
    experts=st.integers(1, 64).map(lambda n: n * 8),
    multiple=st.sampled_from([64, 128, 256]),
    fused=st.booleans(),
)
def test_what_any_geometry_keeps(tp: int, ep: int, width: int, experts: int, multiple: int, fused: bool) -> None:
    assume(experts % ep == 0)
    block = Block(4096, width, experts, 8, 1, "silu")
    entry = "shared_experts: fused" if fused else ""
    found, findings = dims(block, entry=entry, tp=tp, ep=ep, pad=f"{{inter_dim: {multiple}}}")
    assert not findings
    ranks = tp if ep == 1 else 1
    assert found.inter_dim % multiple == 0
    assert 0 <= found.intermediate_pad < multiple
    assert (found.inter_dim - found.intermediate_pad) * ranks >= width
    assert (found.inter_dim - found.intermediate_pad - 1) * ranks < width
    assert (found.expert - fused) * ep == experts
    assert (found.topk - fused, found.shared_experts) == (8, int(fused))
