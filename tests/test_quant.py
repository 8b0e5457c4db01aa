"""Every quantiser against numpy and ml_dtypes, bit for bit."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import naive_quant as naive
from moeshapes.quant import (
    Quantised,
    ScaleRule,
    Spec,
    activation_spec,
    decode,
    e8m0_decode,
    e8m0_scale,
    fp4_encode,
    fp8_dtype,
    largest,
    pack_nibbles,
    quantise,
    quantise_weight,
    quantise_weight_blocks,
    weight_spec,
)
from moeshapes.recipe import RECIPES, Format, QType

FP4, FP8, INT8, INT4 = Format.FP4, Format.FP8, Format.INT8, Format.INT4
MX, BLOCK, TOKEN, TENSOR = QType.PER_1X32, QType.PER_1X128, QType.PER_TOKEN, QType.PER_TENSOR
SIDES = (activation_spec, weight_spec)
SPECS = sorted(
    {side(recipe, fnuz) for recipe, fnuz, side in product(RECIPES.values(), (False, True), SIDES)}
    | {Spec(number, MX, rule=ScaleRule.FUSED) for number in (FP4, FP8)},
    key=str,
)
SPECIAL = (0.0, -0.0, 6.0, -6.0, 448.0, 240.0, 127.0, 1.5, 1.75, 2.0**-126, 2.0**-127, 2.0**-149, -(2.0**-140), 3e38)


def name_of(spec: Spec) -> str:
    flavour = "-fnuz" if spec.fnuz else ""
    return f"{spec.number.value}{flavour}-{spec.q_type.value}-{spec.rule.value}"


def in_naive_words(spec: Spec) -> str:
    return "fp8_fnuz" if spec.number is FP8 and spec.fnuz else spec.number.value


def codes_of(quantised: Quantised) -> naive.Array:
    """Codes one an element, as naive_quant has them."""
    return naive.unpacked(quantised.codes.view(torch.uint8).numpy(), quantised.spec.number.value)


@st.composite
def matrices(draw: st.DrawFn) -> Tensor:
    """fp32 `[3, 256]`: rows of any magnitude that bf16 holds, some elements special, some blocks all zero."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    x = torch.randn((3, 256), generator=generator)
    exponents = torch.tensor([[draw(st.integers(-149, 120))] for _ in range(3)], dtype=torch.float64)
    x *= torch.exp2(exponents).float()
    for value in draw(st.lists(st.sampled_from(SPECIAL) | st.floats(-(2.0**127), 2.0**127, width=32))):
        x[draw(st.integers(0, 2)), draw(st.integers(0, 255))] = value
    if draw(st.booleans()):
        x[draw(st.integers(0, 2)), 32 * draw(st.integers(0, 7)) :] = 0
    return x


def expected_blocks(x: naive.Array, spec: Spec) -> list[naive.Block]:
    number = in_naive_words(spec)
    if spec.q_type is TENSOR:
        return [naive.quantise_wide(x.reshape(-1), number)]
    width = {MX: 32, BLOCK: 128, TOKEN: x.shape[-1]}[spec.q_type]
    blocks = x.reshape(-1, width)
    if spec.number is INT4:
        return [naive.quantise_int4(block) for block in blocks]
    if width == 32:
        return [naive.quantise_mx(block, number, spec.rule is ScaleRule.FUSED) for block in blocks]
    return [naive.quantise_wide(block, number) for block in blocks]


@pytest.mark.parametrize("spec", [spec for spec in SPECS if not spec.is_plain], ids=name_of)
@settings(max_examples=40)
@given(x=matrices())
def test_codes_scales_and_values_are_the_formats(spec: Spec, x: Tensor) -> None:
    found = quantise(x, spec)
    expected, number = expected_blocks(x.numpy(), spec), in_naive_words(spec)
    np.testing.assert_array_equal(codes_of(found).reshape(-1), np.concatenate([block.codes for block in expected]))
    assert found.scales is not None
    if expected[0].byte is not None:
        assert found.scales.flatten().tolist() == [block.byte for block in expected]
    else:
        assert found.scales.flatten().double().tolist() == [block.scale for block in expected]
    exact = np.concatenate([naive.values_of(b.codes, number) * b.scale for b in expected]).reshape(x.shape)
    np.testing.assert_array_equal(found.dequantise(torch.float64).numpy(), exact)
    with np.errstate(over="ignore"):  # 3e38 may round to 2^128, which only fp64 holds
        np.testing.assert_array_equal(found.dequantise().numpy(), exact.astype(np.float32))


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_any_float_type_and_any_leading_axes_give_the_same(spec: Spec) -> None:
    x = torch.randn((2, 3, 256), generator=torch.Generator().manual_seed(7)).bfloat16()
    reference = quantise(x.float().reshape(6, 256), spec)
    for given_as in (x, x.double()):
        found = quantise(given_as, spec)
        assert torch.equal(found.dequantise(), reference.dequantise().reshape(2, 3, 256))
        assert found.codes.shape[:-1] == (2, 3)


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.q_type in (MX, BLOCK)], ids=name_of)
def test_a_partial_block_is_refused(spec: Spec) -> None:
    with pytest.raises(ValueError, match="K = 80 is no multiple of the scale block"):
        quantise(torch.ones(2, 80), spec)


def test_bf16_is_rounded_and_has_no_scales() -> None:
    x = torch.tensor([1.0, 1.00390625, 1.01171875, -3e38])
    found = quantise(x, Spec(Format.BF16, QType.NO))
    assert found.scales is None
    np.testing.assert_array_equal(found.dequantise().numpy(), x.numpy().astype(naive.bf16).astype(np.float32))


# --- e8m0 scales


def boundary_magnitudes() -> Tensor:
    """Every binade's 1, 1.5, 1.75 and 1.875 with their fp32 neighbours: where a scale's exponent can change."""
    mantissa = torch.tensor([round((m - 1) * 2**23) + step for m in (1, 1.5, 1.75, 1.875) for step in (-1, 0, 1)])
    exponent = torch.arange(1, 255).unsqueeze(1) << 23
    return (exponent + mantissa).int().view(torch.float32).flatten()


@pytest.mark.parametrize(("number", "fnuz"), [(FP4, False), (FP8, False), (FP8, True)])
def test_round_up_is_the_smallest_power_of_two_that_fits(number: Format, fnuz: bool) -> None:
    amax = boundary_magnitudes()
    byte = e8m0_scale(amax, number, fnuz, ScaleRule.ROUND_UP)
    assert byte.tolist() == [naive.round_up_byte(a, "fp8_fnuz" if fnuz else number.value) for a in amax.tolist()]
    normal = amax.double() >= 2.0**-115
    top, size = largest(number, fnuz), torch.exp2(byte[normal].double() - 127)
    assert bool((top * size >= amax[normal]).all())
    assert bool((top * size / 2 < amax[normal]).all())


@pytest.mark.parametrize("number", [FP4, FP8])
def test_the_fused_epilogue_differs_from_the_quantiser_only_where_the_contract_says(number: Format) -> None:
    random = torch.randn(20_000, generator=torch.Generator().manual_seed(3)).abs()
    amax = torch.cat((boundary_magnitudes(), random))
    amax = amax[(amax > 2.0**-110) & (amax < 2.0**120)]
    fused = e8m0_scale(amax, number, False, ScaleRule.FUSED).int()
    assert fused.tolist() == [naive.fused_byte(a, number.value) for a in amax.tolist()]
    mantissa = 2 * torch.frexp(amax.double()).mantissa
    larger = mantissa == 1.5 if number is FP4 else (mantissa >= 1.5) & (mantissa <= 1.75)
    assert torch.equal(fused - e8m0_scale(amax, number, False, ScaleRule.ROUND_UP).int(), larger.int())
    if number is FP8:
        assert 0.15 < larger[-20_000:].float().mean() < 0.35


@pytest.mark.parametrize("rule", ScaleRule)
@pytest.mark.parametrize("number", [FP4, FP8])
def test_zero_blocks_and_bad_blocks(number: Format, rule: ScaleRule) -> None:
    x = torch.ones(5, 64)
    x[0, :32], x[1, 5], x[2, 6], x[3, 7] = 0, torch.nan, torch.inf, -torch.inf
    found = quantise(x, Spec(number, MX, rule=rule))
    values = found.dequantise()
    assert found.scales is not None
    assert found.scales[:, 0].tolist()[:4] == [0, 255, 255, 255]
    assert not values[0, :32].any()
    assert bool(values[1:4, :32].isnan().all())
    assert torch.equal(values[:, 32:], torch.ones(5, 32))


def test_every_e8m0_byte() -> None:
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    np.testing.assert_array_equal(e8m0_decode(torch.arange(256, dtype=torch.uint8)).numpy(), expected)


# --- fp32 scales, int8 and int4


@pytest.mark.parametrize("q_type", [BLOCK, TOKEN, TENSOR])
def test_a_zero_scale_reads_as_one(q_type: QType) -> None:
    found = quantise(torch.zeros(2, 256), Spec(FP8, q_type))
    assert found.scales is not None
    assert bool((found.scales == 1).all())
    assert not found.dequantise().any()


def test_int8_truncates() -> None:
    x = torch.tensor([[127.0, 1.99, -1.99, 0.5, -0.999, 126.9]])
    assert quantise(x, Spec(INT8, TOKEN)).codes.tolist() == [[127, 1, -1, 0, 0, 126]]


def test_int4_has_no_minus_eight_and_rounds_to_even() -> None:
    x = torch.tensor([[7.0, -7.0, 2.5, 3.5, -2.5, 0.5, *[0.0] * 26]])
    found = quantise(x, Spec(INT4, MX))
    assert codes_of(found)[0, :6].tolist() == [7, -7, 2, 4, -2, 0]
    assert found.scales is not None
    assert found.scales.dtype is torch.bfloat16


@pytest.mark.parametrize("fnuz", [False, True])
@pytest.mark.parametrize(("rows", "k"), [(256, 384), (256, 128), (128, 128), (128, 256)])
def test_weight_blocks(rows: int, k: int, fnuz: bool) -> None:
    w = torch.randn((rows, k), generator=torch.Generator().manual_seed(11))
    w[:128, :128] = 0
    found = quantise_weight_blocks(w, Spec(FP8, BLOCK, fnuz))
    assert found.scales is not None
    assert found.scales.shape == (rows // 128, k // 128)
    values, number = found.dequantise(torch.float64).numpy(), "fp8_fnuz" if fnuz else "fp8"
    for row, column in product(range(0, rows, 128), range(0, k, 128)):
        area = (slice(row, row + 128), slice(column, column + 128))
        block = naive.quantise_wide(w.numpy()[area], number)
        assert float(found.scales[row // 128, column // 128]) == block.scale
        np.testing.assert_array_equal(codes_of(found)[area], block.codes)
        np.testing.assert_array_equal(values[area], naive.values_of(block.codes, number) * block.scale)


@pytest.mark.parametrize(
    "spec", sorted({weight_spec(recipe, False) for recipe in RECIPES.values()}, key=str), ids=name_of
)
def test_a_slab_is_some_rows_of_the_whole(spec: Spec) -> None:
    w = torch.randn((384, 256), generator=torch.Generator().manual_seed(13))
    whole = quantise_weight(w, spec)
    assert whole.k == 256
    for start, stop in ((0, 384), (0, 100), (128, 256), (128, 300), (256, 257)):
        assert torch.equal(whole.slab(start, stop).dequantise(), whole.dequantise()[start:stop])


@pytest.mark.parametrize(("rows", "k"), [(192, 128), (128, 320)])
def test_a_partial_weight_block_is_refused(rows: int, k: int) -> None:
    with pytest.raises(ValueError, match=f"{rows} x {k}"):
        quantise_weight_blocks(torch.ones(rows, k), Spec(FP8, BLOCK))


# --- codes


def test_the_even_k_index_is_in_the_low_nibble() -> None:
    assert pack_nibbles(torch.tensor([[0x1, 0x2, 0xF, 0x0]], dtype=torch.uint8)).tolist() == [[0x21, 0x0F]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_code_decodes_to_its_value(dtype: torch.dtype) -> None:
    byte = torch.arange(256, dtype=torch.uint8)
    for fnuz in (False, True):
        expected = naive.values_of(np.arange(256), "fp8_fnuz" if fnuz else "fp8")
        codes = byte.view(fp8_dtype(fnuz))
        for columns in (256, 255):  # decoded by pairs, or one by one
            np.testing.assert_array_equal(decode(codes[:columns], FP8, dtype).double().numpy(), expected[:columns])
    pairs = np.stack((np.arange(256) & 15, np.arange(256) >> 4), axis=-1).reshape(-1)
    np.testing.assert_array_equal(decode(byte, FP4, dtype).double().numpy(), naive.values_of(pairs, "fp4"))
    signed = np.where(pairs > 7, pairs - 16, pairs)
    np.testing.assert_array_equal(decode(byte, INT4, dtype).double().numpy(), signed)
    whole = torch.arange(-127, 128, dtype=torch.int8)
    assert decode(whole, INT8, dtype).tolist() == list(range(-127, 128))


def test_rows_that_are_no_contiguous_memory_decode_alike() -> None:
    codes = torch.randint(0, 120, (4, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    strided = codes.view(torch.float8_e4m3fn).repeat(1, 2)[:, 2:10]
    assert torch.equal(decode(strided, FP8), decode(strided.contiguous(), FP8))


def test_fp4_rounds_every_bf16_value_to_the_nearest() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16).float()
    finite = every[every.isfinite()]
    np.testing.assert_array_equal(fp4_encode(finite).numpy(), naive.encode(finite.numpy(), "fp4"))
    assert fp4_encode(torch.tensor([torch.inf, -torch.inf, torch.nan])).tolist()[:2] == [7, 15]


@given(st.lists(st.floats(-8, 8, width=32), min_size=1))
def test_fp4_rounds_any_value_to_the_nearest(values: list[float]) -> None:
    x = torch.tensor(values)
    np.testing.assert_array_equal(fp4_encode(x).numpy(), naive.encode(x.numpy(), "fp4"))
