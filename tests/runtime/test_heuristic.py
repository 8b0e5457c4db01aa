from __future__ import annotations

from dataclasses import replace

import pytest

from moeshapes.recipe import Format, QType
from moeshapes.runtime.call import RuntimeCall
from moeshapes.runtime.heuristic import choose_heuristic

BLOCKS = RuntimeCall(64, "gfx950", 256, 6144, 256, 257, 9, "silu", Format.FP8, QType.PER_1X128)


def test_the_log_of_an_unquantised_layer() -> None:
    call = replace(BLOCKS, tokens=16384, weight=Format.BF16, q_type=QType.NO)
    found = choose_heuristic(call)
    assert (found.one_stage, found.ksplit, found.block_m, found.m_per_expert) == (False, 0, 128, 573)
    assert "run_1stage False, block_m 128, ksplit 0, use_nt False, estimated m per expert 573" in str(found)


@pytest.mark.parametrize(
    ("tokens", "inter_dim", "one_stage", "block_m"),
    [(32, 256, False, 16), (33, 256, True, 32), (33, 192, False, 64), (8, 192, False, 16)],
)
def test_block_scales(tokens: int, inter_dim: int, one_stage: bool, block_m: int) -> None:
    found = choose_heuristic(replace(BLOCKS, tokens=tokens, inter_dim=inter_dim))
    assert (found.one_stage, found.block_m) == (one_stage, block_m)


@pytest.mark.parametrize(
    ("tokens", "inter_dim", "gfx", "one_stage"),
    [(16, 256, "gfx950", False), (17, 256, "gfx950", True), (8, 192, "gfx950", True), (17, 256, "gfx1250", False)],
)
def test_token_scales(tokens: int, inter_dim: int, gfx: str, one_stage: bool) -> None:
    call = replace(BLOCKS, tokens=tokens, inter_dim=inter_dim, gfx=gfx, q_type=QType.PER_TOKEN, given=Format.FP8)
    assert choose_heuristic(call).one_stage is one_stage


def test_split_k_fills_idle_compute_units() -> None:
    few = replace(BLOCKS, tokens=1, model_dim=7168, inter_dim=256)
    assert choose_heuristic(few).ksplit == 14  # 18 tiles on 256 units: at most 15 ways, and 7168 / 14 is 2 x 256
    assert choose_heuristic(replace(few, tokens=32)).ksplit == 0
    assert choose_heuristic(replace(few, env={"AITER_KSPLIT": "3"})).ksplit == 3


def test_load_hints() -> None:
    assert choose_heuristic(replace(BLOCKS, tokens=1024)).non_temporal
    assert not choose_heuristic(replace(BLOCKS, tokens=2048)).non_temporal
    assert not choose_heuristic(replace(BLOCKS, env={"AITER_USE_NT": "0"})).non_temporal
    assert choose_heuristic(replace(BLOCKS, env={"AITER_USE_NT": "maybe"})).non_temporal
