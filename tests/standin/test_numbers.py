"""The stand-in's formats and roundings, against ml_dtypes and the tests' own numpy quantisers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import naive_quant
import standin

GROUPS = {"1x32": "per_1x32", "1x128": "per_1x128", "row": "per_Token", "tensor": "per_Tensor"}
CASES = [
    (number, group, fused)
    for number in ("fp4", "fp8", "fp8_fnuz", "int8")
    for group in GROUPS
    for fused in (False, True)
    if (group == "1x32") >= fused and (number, group) != ("int8", "1x32") and not (fused and number == "fp8_fnuz")
]


@pytest.fixture
def numbers() -> Iterator[Any]:
    with standin.installed():
        yield import_module("aiter.standin.numbers")


@pytest.mark.parametrize("name", ["fp4", "fp8", "fp8_fnuz"])
def test_what_codes_are_worth(numbers: Any, name: str) -> None:
    values = numbers.values_of({"fp4": numbers.FP4, "fp8": numbers.FP8, "fp8_fnuz": numbers.FP8_FNUZ}[name])
    expected = np.arange(len(values), dtype=np.uint8).view(naive_quant.DTYPE[name]).astype(np.float32)
    np.testing.assert_array_equal(values.numpy(), expected)
    assert np.array_equal(np.signbit(values.numpy()), np.signbit(expected)) or np.isnan(expected).any()


def test_what_scale_bytes_are_worth(numbers: Any) -> None:
    expected = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    np.testing.assert_array_equal(numbers.e8m0_values().numpy(), expected)


@pytest.mark.parametrize(("number", "group", "fused"), CASES)
def test_rounding(numbers: Any, number: str, group: str, fused: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn((4, 256), generator=generator) * torch.exp2(torch.randint(-9, 9, (4, 1), generator=generator))
    x[1, :128] = 0
    x[2, 32] = 6.0 * 2**20
    found = numbers.rounded(x, numbers.Rounding(number, group, fused))
    expected = naive_quant.rounded_trip(x.numpy(), number, GROUPS[group], fused)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "amax", [0.0, 1e-45, 1e-38, 5.999, 6.0, 6.001, 9.0, 448.0, 449.0, 3e38, float("inf"), float("nan")]
)
@pytest.mark.parametrize("number", ["fp4", "fp8"])
def test_scale_bytes_at_their_edges(numbers: Any, number: str, amax: float) -> None:
    (byte,) = numbers.scale_byte(torch.tensor([amax]), numbers.Rounding(number, "1x32")).tolist()
    assert byte == naive_quant.round_up_byte(np.float32(amax), number)


def test_no_rounding(numbers: Any) -> None:
    x = torch.randn(2, 32)
    assert numbers.rounded(x, numbers.Rounding()) is x
