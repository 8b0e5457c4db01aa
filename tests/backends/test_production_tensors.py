"""Shuffled weights and scales hold the layer's own bits: what AITER's functions did is undone and compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

import standin
from moeshapes.backends.production.layout import ScaleLayout, WeightLayout, layout_of
from moeshapes.backends.production.library import Library, load
from moeshapes.backends.production.tensors import Weights, kernel_ready
from moeshapes.problem import Activation, Problem
from moeshapes.quant import Quantised, decode
from moeshapes.recipe import RECIPES, Format, QType
from moeshapes.workload import Layer, draw_layer
from unshuffle import in_order, ungrouped_scales, untiled, untiled_int4, untiled_scales

MX4 = ("a4w4", "a8w4", "a16w4")
CASES = [(recipe, False) for recipe in RECIPES] + [(recipe, True) for recipe in (*MX4, "mxfp8")]
"""Recipes, and whether the use has its gates interleaved."""
DIMS = {"plain": (512, 256, 5), "narrow": (256, 384, 3), "odd experts": (768, 128, 7)}
"""model_dim, inter_dim and experts: rows of all experts are a multiple of 256, of 32 alone, and K/32 none of 8."""


def layer(recipe: str, interleave: bool, dims: str, fnuz: bool = False) -> Layer:
    model_dim, inter_dim, expert = DIMS[dims]
    problem = Problem(
        model_dim=model_dim,
        inter_dim=inter_dim,
        expert=expert,
        topk=2,
        recipe_name=recipe,
        fnuz=fnuz,
        activation=Activation("silu"),
        hidden_pad=64,
        intermediate_pad=32,
        interleave=interleave,
    )
    return draw_layer(problem, 3, torch.device("cpu"), 1 << 26)


@pytest.fixture
def library() -> Iterator[Library]:
    with standin.installed():
        yield load()


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize(("recipe", "interleave"), CASES)
def test_the_stand_ins_shuffles_come_undone(recipe: str, interleave: bool, dims: str, library: Library) -> None:
    drawn = layer(recipe, interleave, dims)
    assert_holds(kernel_ready(drawn, library), drawn)


@pytest.mark.aiter
@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize(("recipe", "interleave"), CASES)
def test_aiters_shuffles_come_undone(recipe: str, interleave: bool, dims: str) -> None:
    if find_spec("aiter") is None:
        pytest.skip("AITER is not installed")
    own = load()
    drawn = layer(recipe, interleave, dims, fnuz=own.dtypes.fp8 is torch.float8_e4m3fnuz)
    assert_holds(kernel_ready(drawn, own), drawn)


def assert_holds(ready: Weights, drawn: Layer) -> None:
    layout = layout_of(drawn.problem)
    for shuffled, scale, sets, weight_layout, scale_layout in (
        (ready.w1, ready.w1_scale, drawn.w1, layout.w1, layout.w1_scale),
        (ready.w2, ready.w2_scale, drawn.w2, layout.w2, layout.w2_scale),
    ):
        weights = [sets[index] for index in drawn.set_of.tolist()]
        assert getattr(shuffled, "is_shuffled", False)
        assert torch.equal(plain_codes(shuffled, weight_layout), codes_of(weights))
        scales = [weight.scales for weight in weights if weight.scales is not None]
        assert (scale is None) == (not scales)
        if scale is not None:
            assert torch.equal(plain_scales(scale, scale_layout, torch.stack(scales)), torch.stack(scales))


def codes_of(weights: list[Quantised]) -> Tensor:
    """int4 as values, all else as bytes: `[E, rows, K]`."""
    if weights[0].spec.number is Format.INT4:
        return torch.stack([decode(weight.codes, Format.INT4).to(torch.int8) for weight in weights])
    return torch.stack([weight.codes.view(torch.uint8) for weight in weights])


def plain_codes(shuffled: Tensor, layout: WeightLayout) -> Tensor:
    if layout is WeightLayout.INT4:
        return untiled_int4(shuffled)
    plain = untiled(shuffled).view(torch.uint8)
    return in_order(plain) if layout is WeightLayout.INTERLEAVED else plain


def plain_scales(scale: Tensor, layout: ScaleLayout, like: Tensor) -> Tensor:
    if layout is ScaleLayout.PLAIN:
        return scale
    experts, rows, groups = like.shape
    if layout is ScaleLayout.INT4:
        return ungrouped_scales(scale, experts, rows, groups)
    plain = untiled_scales(scale, experts, rows, groups)
    return in_order(plain) if layout is ScaleLayout.INTERLEAVED else plain


TYPES = {
    "a4w4": ("fp4x2", "fp8_e8m0"),
    "a8w4": ("fp4x2", "fp8_e8m0"),
    "a16w4": ("fp4x2", "fp8_e8m0"),
    "a16wi4": ("i4x2", "bf16"),
    "mxfp8": ("fp8", "fp8_e8m0"),
    "fp8_block": ("fp8", "fp32"),
    "fp8_token": ("fp8", "fp32"),
    "fp8_tensor": ("fp8", "fp32"),
    "int8": ("i8", "fp32"),
    "bf16": ("bf16", None),
}
"""Weights' and scales' types by AITER's names, whose types depend on the release of torch."""
SCALES = {
    QType.PER_TENSOR: ((5, 1), (5, 1)),
    QType.PER_TOKEN: ((5, 512, 1), (5, 512, 1)),
    QType.PER_1X128: ((5, 4, 4), (5, 4, 2)),
}
"""fp32 scales of DIMS["plain"], as AITER takes them (contract 5.1)."""


@pytest.mark.parametrize("recipe", TYPES)
def test_types_and_shapes_are_those_that_aiter_takes(recipe: str, library: Library) -> None:
    ready = kernel_ready(layer(recipe, False, "plain"), library)
    weight, scale = TYPES[recipe]
    packed = 2 if weight.endswith("4x2") else 1
    assert ready.w1.dtype == ready.w2.dtype == getattr(library.dtypes, weight)
    assert (ready.w1.shape, ready.w2.shape) == ((5, 512, 512 // packed), (5, 512, 256 // packed))
    scales = (ready.w1_scale, ready.w2_scale)
    of_scales = {None if found is None else found.dtype for found in scales}
    assert of_scales == {scale and getattr(library.dtypes, scale)}
    if RECIPES[recipe].q_type in SCALES:
        assert tuple(tuple(found.shape) for found in scales if found is not None) == SCALES[RECIPES[recipe].q_type]


@pytest.mark.parametrize("recipe", ["a8w4", "mxfp8"])
def test_gates_lie_in_turn_wherever_activations_are_fp8(recipe: str) -> None:
    """Whatever gate mode is passed: FlyDSL's kernels read it so."""
    layouts = {layout_of(layer(recipe, interleave, "plain").problem) for interleave in (True, False)}
    assert [layout.w1 for layout in layouts] == [WeightLayout.INTERLEAVED]


def test_fp8_of_another_architecture_is_refused(library: Library) -> None:
    with pytest.raises(ValueError, match=r"e4m3fnuz.*fp8 is torch.float8_e4m3fn on this GPU"):
        kernel_ready(layer("fp8_token", False, "plain", fnuz=True), library)


def test_experts_that_share_weights_each_get_them(library: Library) -> None:
    drawn = layer("a4w4", False, "plain")
    shared = replace(drawn, w1=drawn.w1[:3], w2=drawn.w2[:3], set_of=drawn.set_of % 3)
    ready = kernel_ready(shared, library)
    assert_holds(ready, shared)
    assert torch.equal(ready.w1[0].view(torch.uint8), ready.w1[3].view(torch.uint8))
