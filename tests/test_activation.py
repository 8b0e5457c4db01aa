"""The activations against their formulas in Python floats."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.activation import activate
from moeshapes.problem import Activation

SILU, GELU = Activation("silu"), Activation("gelu")
SWIGLU = Activation("swiglu", limit=7.0, alpha=1.702)
SITUV2 = Activation("situv2", beta=4.0, linear_beta=25.0)
LIMITED = (
    Activation("silu", limit=10.0),
    Activation("gelu", limit=0.5),
    SWIGLU,
    Activation("situv2", limit=3.0, beta=4.0, linear_beta=25.0),
)
numbers = st.floats(-40, 40)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def by_formula(gate: float, up: float, activation: Activation) -> float:
    """Contract 6.1, one element."""
    if activation.limit is not None:
        gate = min(gate, activation.limit)
        up = max(min(up, activation.limit), -activation.limit)
    if activation.kind == "silu":
        return gate * sigmoid(gate) * up
    if activation.kind == "gelu":
        return 0.5 * gate * math.erfc(-gate / math.sqrt(2)) * up
    if activation.kind == "swiglu":
        assert activation.alpha is not None
        return gate * sigmoid(activation.alpha * gate) * (up + 1)
    assert activation.beta is not None
    assert activation.linear_beta is not None
    bounded_gate = activation.beta * math.tanh(gate / activation.beta) * sigmoid(gate)
    return bounded_gate * activation.linear_beta * math.tanh(up / activation.linear_beta)


def activated(gate: float, up: float, activation: Activation) -> float:
    values = torch.tensor([[gate], [up]], dtype=torch.float64)
    return float(activate(values[0], values[1], activation))


@pytest.mark.parametrize("activation", [SILU, GELU, SITUV2, *LIMITED], ids=str)
@given(gate=numbers, up=numbers)
def test_formula(activation: Activation, gate: float, up: float) -> None:
    expected = by_formula(gate, up, activation)
    assert activated(gate, up, activation) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@given(numbers, numbers, st.floats(0.1, 3), st.floats(0.5, 30), st.floats(0.5, 30), st.floats(0.1, 50))
def test_parameters_are_used(gate: float, up: float, alpha: float, beta: float, linear: float, limit: float) -> None:
    for activation in (
        Activation("swiglu", limit=limit, alpha=alpha),
        Activation("situv2", limit=limit, beta=beta, linear_beta=linear),
    ):
        expected = by_formula(gate, up, activation)
        assert activated(gate, up, activation) == pytest.approx(expected, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("activation", LIMITED, ids=str)
def test_the_limit_clamps_gate_from_above_and_up_on_both_sides(activation: Activation) -> None:
    limit = activation.limit
    assert limit is not None
    assert activated(limit + 5, 0.25, activation) == activated(limit, 0.25, activation)
    assert activated(0.25, limit + 5, activation) == activated(0.25, limit, activation)
    assert activated(0.25, -limit - 5, activation) == activated(0.25, -limit, activation)
    assert activated(-limit - 1, 0.25, activation) != activated(-limit, 0.25, activation)
    assert activated(limit * 0.9, limit * 0.9, activation) != activated(limit, limit, activation)


@pytest.mark.parametrize("kind", ["silu", "gelu"])
def test_without_a_limit_nothing_is_clamped(kind: str) -> None:
    assert activated(100.0, -100.0, Activation(kind)) == -10_000.0


@pytest.mark.parametrize(
    ("activation", "missing"),
    [
        (Activation("swiglu", limit=7.0), "swiglu_alpha"),
        (Activation("swiglu", alpha=1.702), "swiglu_limit"),
        (Activation("situv2", linear_beta=25.0), "situ_beta"),
        (Activation("situv2", beta=4.0), "situ_linear_beta"),
    ],
)
def test_a_missing_parameter_is_an_error_not_a_default(activation: Activation, missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        activated(1.0, 1.0, activation)


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(ValueError, match="relu2"):
        activated(1.0, 1.0, Activation("relu2"))


@pytest.mark.parametrize("activation", [SILU, GELU, SITUV2, *LIMITED], ids=str)
def test_padding_stays_zero(activation: Activation) -> None:
    assert activated(0.0, 0.0, activation) == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_is_the_inputs_own_and_inputs_stay(dtype: torch.dtype) -> None:
    gate, up = torch.full((2, 3), 20.0, dtype=dtype), torch.full((2, 3), -20.0, dtype=dtype)
    for activation in (SILU, GELU, SITUV2, *LIMITED):
        assert activate(gate, up, activation).dtype is dtype
    assert bool((gate == 20).all())
    assert bool((up == -20).all())
