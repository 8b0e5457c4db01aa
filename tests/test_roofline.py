"""The experts that a call is expected to hit, against the verifier's own draws, and devices' peaks."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from moeshapes.problem import Activation, Problem
from moeshapes.roofline import compute_time, drawn_experts, expected_experts, read_time
from moeshapes.row import UntunedRow
from small_repository import portable_row

SHAPE = portable_row(8).key.shape


def shape_of(tokens: int, expert: int, topk: int) -> UntunedRow:
    return replace(SHAPE, token=tokens, expert=expert, topk=topk)


@pytest.mark.parametrize("tokens", [1, 16, 256, 2048])
@pytest.mark.parametrize(("expert", "topk", "shared"), [(129, 9, 1), (128, 8, 0), (33, 3, 1), (8, 2, 0)])
def test_the_verifiers_draws_hit_the_experts_that_are_expected(
    tokens: int, expert: int, topk: int, shared: int
) -> None:
    """A roofline must not stand above what was timed: the estimate is no more than what is drawn, but for noise."""
    torch = pytest.importorskip("torch")
    from moeshapes.workload import draw_layer, draw_production_calls

    problem = Problem(128, 128, expert, topk, "bf16", False, Activation("silu"), shared_experts=shared)
    layer = draw_layer(problem, 1, torch.device("cpu"), 1 << 20)
    drawn = mean(call.topk_ids.unique().numel() for call in draw_production_calls(layer, tokens, 1, 40))
    shape = shape_of(tokens, expert, topk)
    assert 0.93 * drawn < drawn_experts(shape, shared) < 1.03 * drawn
    assert drawn_experts(shape, shared) < expected_experts(shape) + 0.01


@pytest.mark.parametrize(("expert", "topk", "shared", "hit"), [(4, 4, 0, 4), (4, 4, 1, 4), (3, 1, 1, 1), (2, 5, 0, 2)])
def test_layers_that_leave_nothing_to_choose(expert: int, topk: int, shared: int, hit: int) -> None:
    assert drawn_experts(shape_of(16, expert, topk), shared) == hit


def test_an_h200_has_peaks() -> None:
    """1979 TFLOPS of fp8 at 1.83 GHz by its data sheet; the bandwidth is that of the fastest board of its kind."""
    key = replace(portable_row(1024).key, shape=replace(SHAPE, token=1024, q_dtype_a="torch.float8_e4m3fn"))
    flops = 6 * 1024 * 2 * 256 * 256
    assert compute_time(key) == pytest.approx(1.83 / 1.98 * flops / 1979e6, rel=1e-3)
    assert read_time(key, 2) == pytest.approx(2 * 3 * 256 * 256 / 2 / 4.9e6)
