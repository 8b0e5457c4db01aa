"""Both references against a layer computed one token and slot at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch import Tensor

from moeshapes import oracle, products
from moeshapes.arithmetic import Arithmetic
from moeshapes.oracle import Pass, Reference, exact, modelled, references
from moeshapes.problem import Activation, Problem
from moeshapes.quant import Quantised
from moeshapes.recipe import RECIPES, QType
from moeshapes.workload import Call, Layer, draw_calls, draw_layer
from naive_layer import naive_layer, run

PROBLEM = Problem(256, 128, expert=5, topk=3, recipe_name="a8w4", fnuz=False, activation=Activation("silu", 3.0))
SETS = 3
ACTIVATIONS = {
    "silu": Activation("silu"),
    "silu, limited": Activation("silu", 3.0),
    "gelu": Activation("gelu", 2.0),
    "swiglu": Activation("swiglu", 7.0, alpha=1.702),
    "situv2": Activation("situv2", beta=4.0, linear_beta=25.0),
}
ON_OFF = (False, True)
CLAMPED_TO_SIX = 2.5438872838380617
"""The limit whose clamped product, silu(limit) x limit, is 6: a block's largest then has the mantissa 1.5."""
REDUCE = Arithmetic(32, combine="reduce")
VARIANTS = {
    "atomic": Arithmetic(32),
    "reduce": REDUCE,
    "fp32 intermediate": replace(REDUCE, intermediate_from="fp32"),
    "fused": replace(REDUCE, intermediate_from="fp32", fused_scale=True),
    "fp8 slots": replace(REDUCE, slot_fp8_block=8),
    "fp8 slots, atomic": Arithmetic(32, slot_fp8_block=8),
}
FLAVOURS = [(name, fnuz) for name, recipe in RECIPES.items() for fnuz in ON_OFF if not fnuz or recipe.a.value == "fp8"]
CASES = [
    (name, fnuz, variant)
    for (name, fnuz), (variant, arithmetic) in product(FLAVOURS, VARIANTS.items())
    # e8m0 scales alone are fused, and on architectures with fp8 fn.
    if not arithmetic.fused_scale or (RECIPES[name].q_type is QType.PER_1X32 and not fnuz)
]


def padded(problem: Problem) -> Problem:
    return replace(problem, hidden_pad=64, intermediate_pad=32)


def drawn(problem: Problem, tokens: int = 2) -> tuple[Layer, tuple[Call, ...]]:
    """A layer whose five experts share three weight sets, and its calls."""
    layer = draw_layer(problem, 5, torch.device("cpu"), SETS * 3 * problem.model_dim * problem.inter_dim)
    assert len(layer.w1) == SETS
    return layer, draw_calls(layer, tokens, 6)


def check(layer: Layer, calls: Sequence[Call], found: Sequence[Reference], arithmetic: Arithmetic | None) -> None:
    naive, problem = naive_layer(layer), layer.problem
    for call, reference in zip(calls, found, strict=True):
        output, hidden = run(naive, call, arithmetic)
        same(reference.output, output[:, : problem.logical_model_dim])
        same(reference.intermediate, hidden[:, : problem.logical_inter_dim])


def same(found: Tensor, expected: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> None:
    """Equal but for the order of fp64 sums, which no rounding step in between lets grow."""
    assert found.dtype is torch.float64
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_both_references_are_the_contracts(recipe: str, activation: str) -> None:
    for bias, doweight_stage1, pads in product(ON_OFF, ON_OFF, ON_OFF):
        problem = replace(
            PROBLEM, recipe_name=recipe, activation=ACTIVATIONS[activation], bias=bias, doweight_stage1=doweight_stage1,
            shared_experts=int(bias ^ doweight_stage1 ^ pads),
        )  # fmt: skip
        layer, calls = drawn(padded(problem) if pads else problem)
        check(layer, calls, exact(layer, calls), None)
        check(layer, calls, modelled(layer, calls, REDUCE), REDUCE)


@pytest.mark.parametrize(("recipe", "fnuz", "variant"), CASES)
def test_every_arithmetic_of_every_recipe(recipe: str, fnuz: bool, variant: str) -> None:
    problem = replace(PROBLEM, recipe_name=recipe, fnuz=fnuz, bias=True, shared_experts=1)
    layer, calls = drawn(padded(problem))
    check(layer, calls, modelled(layer, calls, VARIANTS[variant]), VARIANTS[variant])


def test_every_arithmetic_differs_and_so_does_the_exact_result() -> None:
    """Else the test above could not tell one from another."""
    layer, calls = drawn(clamped_to_six(), tokens=4)
    passes = [Pass(calls, None), *(Pass(calls, arithmetic) for arithmetic in VARIANTS.values())]
    outputs = [torch.cat([one.output for one in found]) for found in references(layer, passes)]
    assert not any(torch.equal(one, other) for one, other in combinations(outputs, 2))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_fused_rule_where_it_matters(variant: str) -> None:
    layer, calls = drawn(clamped_to_six(), tokens=4)
    check(layer, calls, modelled(layer, calls, VARIANTS[variant]), VARIANTS[variant])


def clamped_to_six() -> Problem:
    return replace(PROBLEM, recipe_name="a4w4", activation=Activation("silu", CLAMPED_TO_SIX))


def test_passes_together_are_passes_apart() -> None:
    layer, calls = drawn(replace(PROBLEM, bias=True, shared_experts=1))
    passes = [Pass(calls, None), Pass(calls[:1], VARIANTS["fused"]), Pass(calls[1:], REDUCE)]
    together = references(layer, passes)
    apart = [exact(layer, calls), modelled(layer, calls[:1], VARIANTS["fused"]), modelled(layer, calls[1:], REDUCE)]
    for found, expected in zip(together, apart, strict=True):
        for one, other in zip(found, expected, strict=True):
            assert torch.equal(one.output, other.output)
            assert torch.equal(one.intermediate, other.intermediate)


@pytest.mark.parametrize("recipe", ["fp8_tensor", "int8", "a8w4"])
def test_a_call_is_computed_as_if_alone(recipe: str) -> None:
    """A per-tensor scale covers a call, never its neighbours."""
    layer, calls = drawn(replace(PROBLEM, recipe_name=recipe))
    louder = replace(calls[1], activations=calls[1].activations * 64)
    together = modelled(layer, (calls[0], louder), REDUCE)[0]
    same(together.output, modelled(layer, calls[:1], REDUCE)[0].output.numpy())


@pytest.mark.parametrize("recipe", RECIPES)
def test_weights_and_biases_in_pads_are_never_read(recipe: str) -> None:
    layer, calls = drawn(padded(replace(PROBLEM, recipe_name=recipe, bias=True)))
    live = torch.arange(256) < 192
    live_rows = torch.arange(128).repeat(2) < 96
    soiled = replace(
        layer,
        w1=[_soiled(weight, live_rows, 192) for weight in layer.w1],
        w2=[_soiled(weight, live, 96) for weight in layer.w2],
        bias1=_with_nan(layer.bias1, live_rows),
        bias2=_with_nan(layer.bias2, live),
    )
    for arithmetic in (None, REDUCE):
        passes = [Pass(calls, arithmetic)]
        for clean, other in zip(references(layer, passes)[0], references(soiled, passes)[0], strict=True):
            assert torch.equal(clean.output, other.output)
            assert torch.equal(clean.intermediate, other.intermediate)


def _soiled(weight: Quantised, live_rows: Tensor, live_columns: int) -> Quantised:
    codes = weight.codes.clone()
    stored = codes.view(torch.uint8) if codes.element_size() == 1 else codes.view(torch.int16)
    packed = weight.spec.number.value in ("fp4", "int4")
    stored[:, live_columns // (1 + packed) :] = 0x3F
    stored[~live_rows] = 0x3F
    return replace(weight, codes=codes)


def _with_nan(bias: Tensor | None, live: Tensor) -> Tensor:
    assert bias is not None
    return bias.masked_fill(~live, torch.nan)


@pytest.mark.parametrize("recipe", RECIPES)
def test_activations_in_pads_do_not_reach_the_exact_result(recipe: str) -> None:
    layer, calls = drawn(padded(replace(PROBLEM, recipe_name=recipe)))
    soiled = replace(calls[0], activations=calls[0].activations.clone())
    soiled.activations[:, 192:] = torch.nan
    assert torch.equal(exact(layer, calls)[0].output, exact(layer, [soiled, *calls[1:]])[0].output)


@pytest.mark.parametrize("changed", [replace(PROBLEM, interleave=True), replace(PROBLEM, pads_as_arguments=True)])
def test_how_a_kernel_is_handed_its_data_changes_no_reference(changed: Problem) -> None:
    for arithmetic in (None, REDUCE):
        one, other = (
            references(layer, [Pass(calls, arithmetic)])[0]
            for layer, calls in (drawn(padded(PROBLEM)), drawn(padded(changed)))
        )
        assert all(torch.equal(a.output, b.output) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("recipe", RECIPES)
def test_one_block_of_128_is_wide_enough(recipe: str) -> None:
    layer, calls = drawn(replace(PROBLEM, recipe_name=recipe, model_dim=384, inter_dim=128))
    check(layer, calls, exact(layer, calls), None)
    layer, calls = drawn(replace(PROBLEM, recipe_name=recipe, model_dim=128, inter_dim=256))
    check(layer, calls, exact(layer, calls), None)


@pytest.mark.parametrize("recipe", RECIPES)
def test_weights_expanded_slab_by_slab_are_the_whole(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = padded(replace(PROBLEM, recipe_name=recipe, model_dim=384, inter_dim=256))
    layer, calls = drawn(problem)
    whole = exact(layer, calls)
    monkeypatch.setattr(products, "_SLAB_ELEMENTS", 1)  # slabs of 128 rows, the last one of each span shorter
    check(layer, calls, exact(layer, calls), None)
    for found, expected in zip(exact(layer, calls), whole, strict=True):
        same(found.output, expected.output.numpy())


@pytest.mark.parametrize("topk", [1, 5])
def test_any_number_of_slots(topk: int) -> None:
    layer, calls = drawn(replace(PROBLEM, topk=topk), tokens=1)
    for arithmetic in (None, *VARIANTS.values()):
        check(layer, calls, references(layer, [Pass(calls, arithmetic)])[0], arithmetic)


@pytest.mark.parametrize("recipe", RECIPES)
def test_others_are_there_where_the_intermediate_is_quantised_and_near(recipe: str) -> None:
    layer = draw_layer(replace(PROBLEM, recipe_name=recipe), 1, torch.device("cpu"), max_elements=10**9)
    calls = draw_calls(layer, 64, 1)
    assert all(reference.others == () for reference in exact(layer, calls))
    for reference in modelled(layer, calls, REDUCE):
        assert len(reference.others) == (2 if layer.problem.recipe.quantises_activations else 0)
        for output, intermediate in reference.others:
            apart = (output - reference.output).norm(dim=1) / reference.output.norm(dim=1)
            assert apart.max() < 0.1
            assert intermediate.shape == reference.intermediate.shape


def hidden_as_nudged(activation: Activation, gate: Tensor, up: Tensor) -> list[Tensor]:
    """What stage 2 sees of an intermediate as it is, of a smaller and of a larger one; quantised from fp32."""
    problem = replace(PROBLEM, activation=activation)
    arithmetic = replace(REDUCE, intermediate_from="fp32")
    nudged = (oracle._nudged(problem, gate, up, nudge) for nudge in oracle._NUDGES)
    return [oracle._intermediate(problem, hidden, arithmetic) for hidden in nudged]


def changed(own: Tensor, other: Tensor) -> bool:
    return bool((other[0, 1:32] != own[0, 1:32]).any())


def test_a_scale_at_its_boundary_falls_either_way() -> None:
    """The largest value is the format's: nudged up, the block's scale doubles, and subnormal values lose a bit."""
    gate, up = torch.full((1, 128), 40.0, dtype=torch.float64), torch.full((1, 128), 0.0137 / 40, dtype=torch.float64)
    up[0, 0] = 448 / 40
    own, smaller, larger = hidden_as_nudged(Activation("silu"), gate, up)
    assert not changed(own, smaller)
    assert changed(own, larger)


def test_where_the_activation_clamps_no_scale_falls_another_way() -> None:
    """All that Swiglu clamps at 7 is 56 (1 - 2^-17), which nothing but the activation itself errs of."""
    gate, up = torch.full((1, 128), 0.00342, dtype=torch.float64), torch.zeros(1, 128, dtype=torch.float64)
    gate[0, 0], up[0, 0] = 8.0, 8.0
    own, *nudged = hidden_as_nudged(Activation("swiglu", limit=7.0, alpha=1.702), gate, up)
    assert not any(changed(own, other) for other in nudged)
    assert changed(own, hidden_as_nudged(Activation("swiglu", limit=7.0001, alpha=1.702), gate, up)[0])
