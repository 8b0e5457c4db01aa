"""The two ways to multiply rows by their experts' weights, which a CPU and a GPU take, give the same."""

from __future__ import annotations

import pytest
import torch

from jobs import problem
from moeshapes import products
from moeshapes.products import EXACT, Work
from moeshapes.recipe import RECIPES
from moeshapes.workload import draw_calls, draw_layer, expert_rows


@pytest.mark.parametrize("recipe", sorted(RECIPES))
@pytest.mark.parametrize("group_bytes", [1, 5 << 20, 1 << 31])
def test_groups_and_slabs_agree(recipe: str, group_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_GROUP_BYTES", group_bytes)
    layer = draw_layer(problem(recipe, model_dim=256, inter_dim=128, expert=9), 3, torch.device("cpu"), 1 << 30)
    call, *_ = draw_calls(layer, 5, 3)
    x, rows = call.activations.to(EXACT), expert_rows(layer, call.topk_ids)
    for weights, spans, width in ((layer.w1, [range(100), range(128, 228)], 200), (layer.w2, [range(250)], 250)):
        inputs = x if weights is layer.w1 else x[:, :100].repeat_interleave(layer.problem.topk, dim=0)
        per = layer.problem.topk if weights is layer.w1 else 1
        slabs, groups = (Work(inputs, per, rows, width) for _ in range(2))
        products._by_slabs(weights, spans, [slabs])
        products._by_groups(weights, spans, [groups])
        assert slabs.result.abs().sum() > 0
        torch.testing.assert_close(groups.result, slabs.result, rtol=1e-12, atol=1e-12)
