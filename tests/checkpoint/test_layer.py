"""A checkpoint's layer holds, bit for bit, what its tensors hold: sliced, padded and stacked by hand here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

import checkpoints
from checkpoints import EXPERTS, HIDDEN, INTER, LATENT, TOPK, Sample
from moeshapes.checkpoint.layer import read_layer
from moeshapes.problem import Activation, Problem
from moeshapes.quant import Quantised, as_bytes, quantise, quantise_weight, quantise_weight_blocks, weight_spec
from moeshapes.recipe import QType
from moeshapes.workload import Layer, draw_calls
from naive_quant import values_of

ALL = 1 << 40
RANKS = 2
SLICE = INTER // RANKS


def problem(recipe: str, **changes: Any) -> Problem:
    """What one of two ranks has of a sample, the shared expert fused."""
    fused = Problem(
        model_dim=HIDDEN, inter_dim=SLICE, expert=EXPERTS + 1, topk=TOPK + 1, recipe_name=recipe, fnuz=False,
        activation=Activation("silu"), shared_experts=1,
    )  # fmt: skip
    return replace(fused, **changes)


def alone(recipe: str, **changes: Any) -> Problem:
    """The same without the shared expert."""
    return problem(recipe, **{"expert": EXPERTS, "topk": TOPK, "shared_experts": 0, **changes})


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Layer]:
    def layer(sample: Sample, what: Problem, rank: int = 0, max_elements: int = ALL) -> Layer:
        folder = sample.write(tmp_path / "checkpoint")
        return read_layer(folder, sample.layer, what, rank, max_elements, torch.device("cpu"))

    return layer


def same(found: Tensor | None, expected: Tensor | None) -> bool:
    """Bit for bit, type and shape included."""
    if found is None or expected is None:
        return found is expected
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    return torch.equal(found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def is_exactly(found: Quantised, codes: Tensor, scales: Tensor | None) -> bool:
    return same(found.codes, codes) and same(found.scales, scales)


def own(rank: int) -> slice:
    return slice(rank * SLICE, (rank + 1) * SLICE)


def blocks(rank: int, block: int) -> slice:
    return slice(rank * SLICE // block, (rank + 1) * SLICE // block)


def names(sample: Sample, expert: int, projections: tuple[str, str, str] = checkpoints.PROJECTIONS) -> list[str]:
    """Gate, up and down of an expert, below the layer's name."""
    block = next(
        name for name in ("mlp", "ffn", "block_sparse_moe") if f"{sample.layer}.{name}.gate.weight" in sample.tensors
    )
    return [f"{block}.experts.{expert}.{projection}" for projection in projections]


# --- codes as stored


@pytest.mark.parametrize("rank", range(RANKS))
def test_fp8_blocks_keep_their_codes(rank: int, read: Callable[..., Layer]) -> None:
    sample = checkpoints.deepseek_v3()
    layer = read(sample, problem("fp8_block"), rank)
    bases = [names(sample, expert) for expert in range(EXPERTS)]
    bases.append([f"mlp.shared_experts.{projection}" for projection in checkpoints.PROJECTIONS])
    for expert, (gate, up, down) in enumerate(bases):
        w1, w2 = layer.w1[int(layer.set_of[expert])], layer.w2[int(layer.set_of[expert])]
        stacked = torch.cat([sample[f"{name}.weight"][own(rank)].view(torch.uint8) for name in (gate, up)])
        scales = torch.cat([sample[f"{name}.weight_scale_inv"][blocks(rank, 128)] for name in (gate, up)])
        assert is_exactly(w1, stacked.view(checkpoints.FP8), scales)
        narrow = sample[f"{down}.weight"][:, own(rank)]
        assert is_exactly(w2, narrow, sample[f"{down}.weight_scale_inv"][:, blocks(rank, 128)])
    assert layer.origin
    assert layer.origin["quantised_anew"] == {}


@pytest.mark.parametrize("rank", range(RANKS))
@pytest.mark.parametrize(
    ("sample", "recipe", "projections", "codes_end", "scales_end"),
    [
        (checkpoints.deepseek_v4(), "a8w4", checkpoints.W, ".weight", ".scale"),
        (checkpoints.deepseek_v3(checkpoints.mxfp4), "a4w4", checkpoints.PROJECTIONS, ".weight", ".weight_scale"),
        (checkpoints.deepseek_v3(checkpoints.mxfp8), "mxfp8", checkpoints.PROJECTIONS, ".weight", ".weight_scale_inv"),
    ],
    ids=["DeepSeek-V4", "Quark", "mxfp8"],
)
def test_mx_keeps_its_codes(
    rank: int,
    sample: Sample,
    recipe: str,
    projections: Any,
    codes_end: str,
    scales_end: str,
    read: Callable[..., Layer],
) -> None:
    layer = read(sample, alone(recipe), rank)
    per_byte = 1 if recipe == "mxfp8" else 2
    narrow = slice(rank * SLICE // per_byte, (rank + 1) * SLICE // per_byte)
    dtype = checkpoints.FP8 if recipe == "mxfp8" else torch.uint8
    for expert, (w1, w2) in enumerate(zip(layer.w1, layer.w2, strict=True)):
        gate, up, down = names(sample, expert, projections)
        codes = torch.cat([sample[name + codes_end][own(rank)].view(torch.uint8) for name in (gate, up)])
        scales = torch.cat([sample[name + scales_end][own(rank)].view(torch.uint8) for name in (gate, up)])
        assert is_exactly(w1, codes.view(dtype), scales)
        of_down = sample[down + scales_end].view(torch.uint8)[:, blocks(rank, 32)]
        assert is_exactly(w2, sample[down + codes_end][:, narrow].contiguous().view(dtype), of_down)


def test_fp8_channels_keep_their_codes(read: Callable[..., Layer]) -> None:
    sample = checkpoints.glm()
    layer = read(sample, alone("fp8_token"), 1)
    gate, up, down = names(sample, 5)
    codes = torch.cat([sample[f"{name}.weight"][own(1)].view(torch.uint8) for name in (gate, up)])
    scales = torch.cat([sample[f"{name}.weight_scale"][own(1)].float() for name in (gate, up)])
    assert is_exactly(layer.w1[5], codes.view(checkpoints.FP8), scales)
    assert is_exactly(layer.w2[5], sample[f"{down}.weight"][:, own(1)], sample[f"{down}.weight_scale"].float())


def test_fp8_under_one_scale_keeps_its_codes(read: Callable[..., Layer]) -> None:
    sample = checkpoints.qwen3(checkpoints.fp8_tensor)
    layer = read(sample, alone("fp8_tensor"), 1)
    gate, up, down = names(sample, 2)
    codes = torch.cat([sample[f"{name}.weight"][own(1)].view(torch.uint8) for name in (gate, up)])
    assert is_exactly(layer.w1[2], codes.view(checkpoints.FP8), torch.tensor([0.00025]))
    assert is_exactly(layer.w2[2], sample[f"{down}.weight"][:, own(1)], torch.tensor([0.00025]))


def test_int4_codes_lose_their_offset_alone(read: Callable[..., Layer]) -> None:
    sample = checkpoints.kimi_k2()
    layer = read(sample, problem("a16wi4"), 1)
    gate, up, down = names(sample, 3)
    values = torch.cat([unpacked(sample[f"{name}.weight_packed"])[own(1)] for name in (gate, up)])
    scales = torch.cat([sample[f"{name}.weight_scale"][own(1)] for name in (gate, up)])
    assert is_exactly(layer.w1[3], packed(values), scales)
    narrow = unpacked(sample[f"{down}.weight_packed"])[:, own(1)]
    assert is_exactly(layer.w2[3], packed(narrow), sample[f"{down}.weight_scale"][:, blocks(1, 32)])


def unpacked(words: Tensor) -> Tensor:
    """Codes -8 to 7 of int32 words, the first in the lowest bits, 8 added to each."""
    unsigned = words.long() & 0xFFFFFFFF
    return torch.stack([(unsigned >> 4 * place & 15) - 8 for place in range(8)], dim=-1).flatten(1)


def packed(values: Tensor) -> Tensor:
    """Two's complement nibbles, the even index low."""
    return ((values[:, 0::2] & 15) | ((values[:, 1::2] & 15) << 4)).to(torch.uint8)


def test_latent_experts_keep_their_codes(read: Callable[..., Layer]) -> None:
    sample = checkpoints.kimi_k3()
    layer = read(sample, alone("a4w4", model_dim=LATENT), 1)
    gate, up, down = names(sample, 6, checkpoints.W)
    for end, found in (("packed", layer.w1[6].codes), ("scale", layer.w1[6].scales)):
        assert same(found, torch.cat([sample[f"{name}.weight_{end}"][own(1)] for name in (gate, up)]))
    assert same(layer.w2[6].codes, sample[f"{down}.weight_packed"][:, SLICE // 2 :])


@pytest.mark.parametrize("rank", range(RANKS))
def test_gpt_oss_rows_are_taken_apart(rank: int, read: Callable[..., Layer]) -> None:
    sample = checkpoints.gpt_oss()
    layer = read(sample, alone("a16w4", bias=True), rank)
    for expert in range(EXPERTS):
        blocks_of = sample["mlp.experts.gate_up_proj_blocks"][expert].flatten(1)
        scales_of = sample["mlp.experts.gate_up_proj_scales"][expert]
        order = [2 * row + half for half in (0, 1) for row in range(rank * SLICE, (rank + 1) * SLICE)]
        assert is_exactly(layer.w1[expert], blocks_of[order], scales_of[order])
        down = sample["mlp.experts.down_proj_blocks"][expert][:, blocks(rank, 32)].flatten(1)
        assert is_exactly(layer.w2[expert], down, sample["mlp.experts.down_proj_scales"][expert][:, blocks(rank, 32)])
        assert layer.bias1 is not None
        assert same(layer.bias1[expert], sample["mlp.experts.gate_up_proj_bias"][expert][order].float())


def interleaved_fp8() -> Sample:
    """gpt-oss's tensors as a quantiser of 128x128 blocks would write them: each block has 64 rows of gate, 64 of up."""
    draw, sample = checkpoints.Draw(9), checkpoints.gpt_oss()
    for name in ("gate_up_proj", "down_proj"):
        sample = sample.without(f"mlp.experts.{name}_blocks").without(f"mlp.experts.{name}_scales")
    return sample.having(
        mlp__experts__gate_up_proj__weight=draw.fp8(EXPERTS, 2 * INTER, HIDDEN),
        mlp__experts__gate_up_proj__weight_scale_inv=draw.scales(EXPERTS, 2 * INTER // 128, HIDDEN // 128),
        mlp__experts__down_proj__weight=draw.fp8(EXPERTS, HIDDEN, INTER),
        mlp__experts__down_proj__weight_scale_inv=draw.scales(EXPERTS, HIDDEN // 128, INTER // 128),
    )


@pytest.mark.parametrize("recipe", ["fp8_block", "fp8_token", "bf16"])
@pytest.mark.parametrize("rank", range(RANKS))
def test_rows_in_turn_are_taken_out_of_their_blocks(rank: int, recipe: str, read: Callable[..., Layer]) -> None:
    sample = interleaved_fp8()
    layer = read(sample, alone(recipe, bias=True), rank)
    codes = sample["mlp.experts.gate_up_proj.weight"][2].view(torch.uint8).numpy()
    scales = sample["mlp.experts.gate_up_proj.weight_scale_inv"][2].numpy()
    grid = scales.repeat(128, axis=0).repeat(128, axis=1)
    values = torch.from_numpy(values_of(codes, "fp8").astype("float32") * grid)
    w1 = torch.cat([values[half::2][own(rank)] for half in (0, 1)])
    expected = quantise_weight(w1, layer.w1[2].spec)
    assert is_exactly(layer.w1[2], expected.codes, expected.scales)
    assert layer.origin
    assert layer.origin["quantised_anew"]["routed w1"] == EXPERTS


def test_one_rank_adds_the_second_bias(read: Callable[..., Layer]) -> None:
    sample = checkpoints.gpt_oss()
    biases = [read(sample, alone("a16w4", bias=True), rank).bias2 for rank in range(RANKS)]
    assert same(biases[0], sample["mlp.experts.down_proj_bias"].float())
    assert same(biases[1], torch.zeros(EXPERTS, HIDDEN))


def test_stacked_experts_are_taken_apart(read: Callable[..., Layer]) -> None:
    sample = checkpoints.qwen3_5()
    layer = read(sample, problem("bf16"), 1)
    both = sample["mlp.experts.gate_up_proj"][4]
    assert is_exactly(layer.w1[4], torch.cat([both[:INTER][own(1)], both[INTER:][own(1)]]), None)
    assert is_exactly(layer.w2[4], sample["mlp.experts.down_proj"][4][:, own(1)], None)
    gate, up = (sample[f"mlp.shared_expert.{name}_proj.weight"][own(1)] for name in ("gate", "up"))
    assert is_exactly(layer.w1[EXPERTS], torch.cat([gate, up]), None)


# --- padding


def test_pads_are_zero_codes_under_the_scales_of_zeros(read: Callable[..., Layer]) -> None:
    sample = checkpoints.deepseek_v3(checkpoints.mxfp4)
    what = alone("a4w4", model_dim=384, hidden_pad=128, inter_dim=384, intermediate_pad=128)
    layer, plain = read(sample, what, 1), read(sample, alone("a4w4"), 1)
    for padded, whole in zip(layer.w1, plain.w1, strict=True):
        assert padded.codes.shape == (768, 192)
        assert padded.scales is not None
        assert whole.scales is not None
        for half, first in ((0, 0), (1, SLICE)):
            rows = slice(384 * half, 384 * half + SLICE)
            assert same(padded.codes[rows, :128], whole.codes[first : first + SLICE])
            assert same(padded.scales[rows, :8], whole.scales[first : first + SLICE])
        assert int(padded.codes.count_nonzero()) == int(whole.codes.count_nonzero())
        assert int(padded.scales.count_nonzero()) == int(whole.scales.count_nonzero())
    for padded, whole in zip(layer.w2, plain.w2, strict=True):
        assert same(padded.codes[:256, :128], whole.codes)
        assert int(padded.codes.count_nonzero()) == int(whole.codes.count_nonzero())
    assert not layer.channel_gain[256:].any()
    assert not draw_calls(layer, 3, 1)[0].activations[:, 256:].any()


@pytest.mark.parametrize(
    ("recipe", "matrix", "scale"), [("fp8_block", "fp8_block", 1.0), ("fp8_token", "fp8_channel", 1.0)]
)
def test_wide_scales_of_pads_are_one(recipe: str, matrix: str, scale: float, read: Callable[..., Layer]) -> None:
    sample = checkpoints.qwen3(getattr(checkpoints, matrix))
    layer = read(sample, alone(recipe, inter_dim=384, intermediate_pad=128))
    assert layer.w1[0].scales is not None
    rows = layer.w1[0].scales.shape[0] // 2
    live = rows * 256 // 384
    assert bool((layer.w1[0].scales[live:rows] == scale).all())
    assert not layer.w1[0].codes.view(torch.uint8)[256:384].any()
    assert layer.origin
    assert layer.origin["quantised_anew"] == {}


def test_a_slice_that_ends_in_a_block_keeps_its_codes(read: Callable[..., Layer]) -> None:
    """gpt-oss-120b on 8 ranks: 360 columns are 11 blocks and a quarter. Here 16 are half of one."""
    sample = checkpoints.gpt_oss()
    what = alone("a16w4", bias=True, inter_dim=64, intermediate_pad=48)
    first, second = read(sample, what, 0), read(sample, what, 1)
    down = sample["mlp.experts.down_proj_blocks"][0].flatten(1)
    scales = sample["mlp.experts.down_proj_scales"][0]
    assert same(first.w2[0].codes, pad(down[:, :8], (0, 24)))
    assert same(first.w2[0].scales, pad(scales[:, :1], (0, 1)))
    assert first.origin
    assert first.origin["quantised_anew"] == {}
    # The second rank's columns begin within a block: no scale of the checkpoint is theirs alone. w1's rows are whole.
    assert second.origin
    assert second.origin["quantised_anew"] == {"routed w2": EXPERTS}
    exact = Quantised(first.w2[0].spec, down, scales).dequantise()
    again = quantise(pad(exact[:, 16:32], (0, 48)), first.w2[0].spec)
    assert is_exactly(second.w2[0], again.codes, again.scales)


# --- quantised anew


def decoded(sample: Sample, name: str) -> Tensor:
    """fp32 values of a sample's fp8 matrix under block scales, of either type."""
    scales = sample[f"{name}.scale"].view(torch.uint8) if f"{sample.layer}.{name}.scale" in sample.tensors else None
    wide = torch.exp2(scales.double() - 127) if scales is not None else sample[f"{name}.weight_scale_inv"].double()
    grid = wide.repeat_interleave(128, 0).repeat_interleave(128, 1)
    codes = sample[f"{name}.weight"]
    return (codes.double() * grid[: codes.shape[0], : codes.shape[1]]).float()


@pytest.mark.parametrize("recipe", ["a4w4", "a8w4", "mxfp8", "fp8_token", "fp8_tensor", "int8", "a16wi4", "bf16"])
def test_other_recipes_are_quantised_from_the_decoded_weights(recipe: str, read: Callable[..., Layer]) -> None:
    sample = checkpoints.deepseek_v3()
    layer = read(sample, problem(recipe), 1)
    spec = weight_spec(layer.problem.recipe, False)
    for expert, base in ((2, "mlp.experts.2"), (EXPERTS, "mlp.shared_experts")):
        gate, up, down = (decoded(sample, f"{base}.{projection}") for projection in checkpoints.PROJECTIONS)
        w1, w2 = quantise(torch.cat([gate[own(1)], up[own(1)]]), spec), quantise(down[:, own(1)], spec)
        assert is_exactly(layer.w1[expert], w1.codes, w1.scales)
        assert is_exactly(layer.w2[expert], w2.codes, w2.scales)
    assert layer.origin
    assert layer.origin["quantised_anew"] == {
        "routed w1": EXPERTS, "routed w2": EXPERTS, "shared w1": 1, "shared w2": 1,
    }  # fmt: skip


def test_the_shared_expert_alone_is_quantised_anew_where_it_alone_is_of_another_form(
    read: Callable[..., Layer],
) -> None:
    sample = checkpoints.deepseek_v4()
    layer = read(sample, problem("a8w4"), 1)
    spec = weight_spec(layer.problem.recipe, False)
    gate, up, _ = (decoded(sample, f"ffn.shared_experts.{projection}") for projection in checkpoints.W)
    expected = quantise(torch.cat([gate[own(1)], up[own(1)]]), spec)
    assert is_exactly(layer.w1[EXPERTS], expected.codes, expected.scales)
    assert layer.origin
    assert layer.origin["quantised_anew"] == {"shared w1": 1, "shared w2": 1}


def test_a_slice_that_begins_in_a_block_is_quantised_anew(read: Callable[..., Layer]) -> None:
    sample = checkpoints.deepseek_v3()
    layer = read(sample, alone("fp8_block", inter_dim=128, intermediate_pad=64), 1)
    spec = weight_spec(layer.problem.recipe, False)
    gate, up, _ = (decoded(sample, name) for name in names(sample, 0))
    stacked = torch.cat([pad(half[64:128], (0, 0, 0, 64)) for half in (gate, up)])
    expected = quantise_weight_blocks(stacked, spec)
    assert is_exactly(layer.w1[0], expected.codes, expected.scales)


def test_scales_of_a_tensor_that_differ_become_one(read: Callable[..., Layer]) -> None:
    sample = checkpoints.qwen3(checkpoints.fp8_tensor)
    gate, up, _ = names(sample, 0)
    sample = sample.having(**{f"{up}.weight_scale".replace(".", "__"): torch.tensor(0.0005)})
    layer = read(sample, alone("fp8_tensor"))
    values = [sample[f"{name}.weight"][own(0)].float() * sample[f"{name}.weight_scale"] for name in (gate, up)]
    expected = quantise(torch.cat(values), weight_spec(layer.problem.recipe, False))
    assert is_exactly(layer.w1[0], expected.codes, expected.scales)
    assert layer.origin
    assert layer.origin["quantised_anew"] == {"routed w1": 1}


@pytest.mark.parametrize("matrix", ["fp8_block", "mxfp8"])
def test_fp8_becomes_fnuz_without_loss(matrix: str, read: Callable[..., Layer]) -> None:
    sample = checkpoints.qwen3(getattr(checkpoints, matrix))
    recipe = {"fp8_block": "fp8_block", "mxfp8": "mxfp8"}[matrix]
    fn, fnuz = (read(sample, alone(recipe, fnuz=flavour)) for flavour in (False, True))
    assert fnuz.w1[0].codes.dtype is torch.float8_e4m3fnuz
    for one, other in zip(fn.w1 + fn.w2, fnuz.w1 + fnuz.w2, strict=True):
        assert torch.equal(one.dequantise(torch.float64), other.dequantise(torch.float64))
    assert fnuz.origin
    assert fnuz.origin["quantised_anew"] == {}


def test_int8_of_channels_is_quantised_anew_for_one_scale(read: Callable[..., Layer]) -> None:
    sample = checkpoints.qwen3(checkpoints.int8_channel)
    layer = read(sample, alone("int8"))
    gate, up, _ = names(sample, 1)
    values = [(sample[f"{name}.weight"].float() * sample[f"{name}.weight_scale"])[own(0)] for name in (gate, up)]
    expected = quantise(torch.cat(values), weight_spec(layer.problem.recipe, False))
    assert layer.w1[1].spec.q_type is QType.PER_TENSOR
    assert is_exactly(layer.w1[1], expected.codes, expected.scales)


@pytest.mark.parametrize(
    ("matrix", "recipe", "ending", "spoilt"),
    [
        ("plain", "bf16", "weight", torch.nan),
        ("plain", "bf16", "weight", torch.inf),
        ("fp8_block", "fp8_block", "weight", 0x7F),
        ("fp8_block", "fp8_block", "weight", 0xFF),
        ("fp8_block", "fp8_block", "weight_scale_inv", torch.inf),
        ("fp8_block_e8m0", "fp8_block", "scale", 0xFF),
        ("fp8_channel", "fp8_token", "weight_scale", torch.nan),
        ("fp8_tensor", "fp8_tensor", "weight_scale", torch.nan),
        ("mxfp8", "mxfp8", "weight", 0xFF),
        ("mxfp8", "mxfp8", "weight_scale_inv", 0xFF),
        ("mxfp4", "a4w4", "weight_scale", 0xFF),
        ("mxfp4_v4", "a8w4", "scale", 0xFF),
        ("int4_packed", "a16wi4", "weight_scale", torch.nan),
    ],
)
@pytest.mark.parametrize("fnuz", [False, True])
def test_kept_codes_that_are_nan_are_refused(
    matrix: str, recipe: str, ending: str, spoilt: float, fnuz: bool, read: Callable[..., Layer]
) -> None:
    sample = checkpoints.qwen3(getattr(checkpoints, matrix))
    name = f"{names(sample, 1)[2]}.{ending}"
    broken = sample[name].clone()
    as_bytes(broken).view(-1)[-1] = spoilt
    with pytest.raises(ValueError, match="NaN"):
        read(sample.having(**{name.replace(".", "__"): broken}), alone(recipe, fnuz=fnuz), RANKS - 1)


def test_weights_that_are_nan_are_refused(read: Callable[..., Layer]) -> None:
    sample = checkpoints.qwen3()
    gate = names(sample, 1)[0]
    broken = sample[f"{gate}.weight"].clone()
    broken[3, 5] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        read(sample.having(**{f"{gate}.weight".replace(".", "__"): broken}), alone("fp8_token"))


GPT_OSS: dict[str, Any] = {"bias": True, "interleave": True, "activation": Activation("swiglu")}


@pytest.mark.parametrize(
    ("sample", "what", "name"),
    [
        (checkpoints.deepseek_v3(), alone("fp8_block"), "post_attention_layernorm.weight"),
        (checkpoints.deepseek_v3(), alone("fp8_block"), "mlp.gate.weight"),
        (checkpoints.deepseek_v3(), alone("fp8_block"), "mlp.gate.e_score_correction_bias"),
        (checkpoints.gpt_oss(), alone("a8w4", **GPT_OSS), "mlp.router.bias"),
        (checkpoints.gpt_oss(), alone("a8w4", **GPT_OSS), "mlp.experts.gate_up_proj_bias"),
        (checkpoints.gpt_oss(), alone("a8w4", **GPT_OSS), "mlp.experts.down_proj_bias"),
        (checkpoints.qwen3_5(), problem("bf16"), "mlp.shared_expert_gate.weight"),
        (checkpoints.kimi_k3(), alone("a4w4", model_dim=LATENT), "block_sparse_moe.routed_expert_down_proj.weight"),
    ],
)
@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf])
def test_what_stands_beside_the_weights_is_finite_too(
    sample: Sample, what: Problem, name: str, spoilt: float, read: Callable[..., Layer]
) -> None:
    """What a kernel makes of such tokens would be held against the kernel."""
    assert read(sample, what).problem == what
    broken = sample[name].clone()
    broken.view(-1)[-1] = spoilt
    with pytest.raises(ValueError, match="NaN or infinite"):
        read(sample.having(**{name.replace(".", "__"): broken}), what)


# --- experts


def test_two_shared_experts_are_the_halves_of_one(read: Callable[..., Layer]) -> None:
    draw = checkpoints.Draw(11)
    wide = {f"mlp__shared_experts__{name}__weight": draw.bf16(2 * INTER, HIDDEN) for name in ("gate_proj", "up_proj")}
    sample = checkpoints.kimi_k2().having(**wide, mlp__shared_experts__down_proj__weight=draw.bf16(HIDDEN, 2 * INTER))
    what = problem("bf16", expert=EXPERTS + 2, topk=TOPK + 2, shared_experts=2)
    layer = read(sample, what, 1)
    for number in (0, 1):
        rows = slice(number * INTER + SLICE, (number + 1) * INTER)
        gate, up = (wide[f"mlp__shared_experts__{name}__weight"][rows] for name in ("gate_proj", "up_proj"))
        assert is_exactly(layer.w1[EXPERTS + number], torch.cat([gate, up]), None)


def test_ranks_that_share_experts_hold_their_own(read: Callable[..., Layer]) -> None:
    sample = checkpoints.qwen3()
    what = alone("bf16", expert=EXPERTS // 4, topk=2, ep=4, inter_dim=INTER)
    layer = read(sample, what, 3)
    for local, number in enumerate((6, 7)):
        gate, up, _ = names(sample, number)
        assert is_exactly(layer.w1[local], torch.cat([sample[f"{gate}.weight"], sample[f"{up}.weight"]]), None)


def test_as_many_experts_are_read_as_fit(read: Callable[..., Layer]) -> None:
    sample = checkpoints.deepseek_v3()
    per_expert = 3 * HIDDEN * SLICE
    whole, layer = read(sample, problem("fp8_block")), read(sample, problem("fp8_block"), max_elements=4 * per_expert)
    assert layer.set_of.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 3]
    assert len(layer.w1) == 4
    assert is_exactly(layer.w1[3], whole.w1[EXPERTS].codes, whole.w1[EXPERTS].scales)
    assert layer.origin
    assert whole.origin
    assert (layer.origin["experts_read"], whole.origin["experts_read"]) == (3, EXPERTS)
    assert layer.origin["bytes_read"] < whole.origin["bytes_read"] / 2


# --- bytes


def test_what_is_read_is_the_slices_and_no_more(read: Callable[..., Layer]) -> None:
    sample = checkpoints.deepseek_v3()
    layer = read(sample, problem("fp8_block"), 1)
    of_expert = 3 * HIDDEN * SLICE + 4 * 3 * (HIDDEN // 128) * (SLICE // 128)
    router = 2 * EXPERTS * HIDDEN + 4 * EXPERTS + 2 * HIDDEN
    assert layer.origin
    assert layer.origin["bytes_read"] == (EXPERTS + 1) * of_expert + router
    assert layer.origin["tensors_read"] == 6 * (EXPERTS + 1) + 3
    assert layer.origin["rank"] == 1
    assert layer.origin["layer"] == sample.layer
