from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from moeshapes.recipe import Format, QType
from moeshapes.runtime.call import RuntimeCall
from moeshapes.runtime.ck import ck_obstacle
from moeshapes.runtime.version import Version

BF16 = RuntimeCall(32768, "gfx942", 304, 4096, 192, 128, 8, "silu", Format.BF16, QType.NO)
FP8 = replace(BF16, gfx="gfx950", weight=Format.FP8, q_type=QType.PER_TENSOR)
FP4 = replace(BF16, gfx="gfx950", weight=Format.FP4, q_type=QType.PER_1X32, inter_dim=512)


def test_narrow_widths_fit_since_there_are_tiles_for_them() -> None:
    assert not ck_obstacle(BF16, 128)
    before = replace(BF16, version=Version(date(2025, 12, 9)))
    assert "192 % 128 = 64" in ck_obstacle(before, 128)
    assert not ck_obstacle(before, 32)


@pytest.mark.parametrize(("inter_dim", "block_m", "fits"), [(192, 32, False), (384, 32, False), (512, 32, True)])
def test_eight_bit_steps_on_gfx950(inter_dim: int, block_m: int, fits: bool) -> None:
    assert (ck_obstacle(replace(FP8, inter_dim=inter_dim), block_m) == "") is fits


def test_each_stage_is_judged_by_itself() -> None:
    assert not ck_obstacle(FP8, 32, [1])
    assert "stage 2" in ck_obstacle(FP8, 32, [2])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"given": Format.FP8}, "no instance for fp8 activations x fp4 weights"),
        ({"given": Format.BF16}, "no instance for bf16 activations x fp4 weights"),
        ({"activation": "swiglu", "given": Format.FP4}, "no instance for swiglu"),
        ({"activation": "situv2", "given": Format.FP4}, "no instance for situv2"),
        ({"inter_dim": 384}, "384 % 256 = 128"),
        ({"inter_dim": 384, "shuffled": False}, "384 % 256 = 128"),
        ({"weight": Format.FP8}, "no instance for fp8 activations x fp8 weights, per_1x32"),
    ],
)
def test_what_has_no_instance(changes: dict[str, object], words: str) -> None:
    assert words in ck_obstacle(replace(FP4, **changes), 32)  # type: ignore[arg-type]


def test_block_sizes_that_have_none() -> None:
    assert "block_m 16" in ck_obstacle(FP4, 16)
    assert not ck_obstacle(FP4, 64)
    blocks = replace(FP8, q_type=QType.PER_1X128, inter_dim=256)
    assert not ck_obstacle(blocks, 16)
    assert "block_m 128" in ck_obstacle(blocks, 128)
