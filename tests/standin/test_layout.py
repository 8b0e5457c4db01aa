"""The stand-in's shuffles, by where each byte must lie, and back."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch

import standin

EXPERTS, ROWS, COLUMNS = 3, 64, 128
"""Of a weight in bytes; of scales, columns are a sixteenth of it."""


@pytest.fixture
def shuffle() -> Iterator[ModuleType]:
    with standin.installed():
        yield import_module("aiter.ops.shuffle")


def layout() -> Any:
    return import_module("aiter.standin.layout")


def numbered(*shape: int) -> torch.Tensor:
    """Bytes of which neighbours differ, and rows, and experts."""
    count = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    return ((count * 7 + count // 256 * 31 + count // 8192 * 5) % 256).to(torch.uint8).view(shape)


def weight_place(row: int, column: int, interleaved: bool) -> int:
    """Where a byte of an expert's weight lies, by contract 5.2."""
    tile_row = row // 16
    if interleaved:
        half = ROWS // 2
        tile_row = row % half // 16 * 2 + row // half
    return tile_row * 16 * COLUMNS + column // 16 * 256 + row % 16 * 16 + column % 16


def scale_place(row: int, column: int, columns: int, interleaved: bool) -> int:
    """Where a byte of an expert's scales lies, by contract 5.2."""
    half = ROWS // 2
    block, pair, lane = (
        (row % half // 16, row // half, row % 16) if interleaved else (row // 32, row // 16 % 2, row % 16)
    )
    return block * 32 * columns + column // 8 * 256 + column % 4 * 64 + lane * 4 + column // 4 % 2 * 2 + pair


@pytest.mark.parametrize("interleaved", [False, True])
def test_where_the_bytes_of_a_weight_lie(shuffle: ModuleType, interleaved: bool) -> None:
    weight = numbered(EXPERTS, ROWS, COLUMNS)
    moved = shuffle.shuffle_weight_a16w4(weight, 16, interleaved).view(EXPERTS, -1)
    expected = torch.empty_like(moved)
    for row in range(ROWS):
        for column in range(COLUMNS):
            expected[:, weight_place(row, column, interleaved)] = weight[:, row, column]
    assert torch.equal(moved, expected)


@pytest.mark.parametrize("interleaved", [False, True])
def test_where_the_bytes_of_scales_lie(shuffle: ModuleType, interleaved: bool) -> None:
    scales, columns = numbered(EXPERTS * ROWS, 16), 16
    moved = shuffle.shuffle_scale_a16w4(scales, EXPERTS, interleaved).view(EXPERTS, -1)
    expected = torch.empty_like(moved)
    for row in range(ROWS):
        for column in range(columns):
            place = scale_place(row, column, columns, interleaved)
            expected[:, place] = scales.view(EXPERTS, ROWS, columns)[:, row, column]
    assert torch.equal(moved, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.float4_e2m1fn_x2])
def test_sixteen_bytes_are_a_run_whatever_the_dtype(shuffle: ModuleType, dtype: torch.dtype) -> None:
    stored = numbered(EXPERTS, ROWS, COLUMNS)
    moved = shuffle.shuffle_weight(stored.view(dtype), (16, 16))
    assert moved.dtype is dtype
    assert torch.equal(moved.view(torch.uint8), shuffle.shuffle_weight(stored, (16, 16)))


def test_only_gate_and_up_tell_the_two_shuffles_apart(shuffle: ModuleType) -> None:
    weight, scales = numbered(EXPERTS, ROWS, COLUMNS), numbered(4 * ROWS, 16)
    plain = shuffle.shuffle_weight(weight, (16, 16))
    assert torch.equal(plain, shuffle.shuffle_weight_a16w4(weight, 16, False))
    assert not torch.equal(plain, shuffle.shuffle_weight_a16w4(weight, 16, True))
    by_expert = shuffle.shuffle_scale_a16w4(scales, 4, False)
    assert torch.equal(shuffle.shuffle_scale(scales), by_expert)
    assert not torch.equal(by_expert, shuffle.shuffle_scale_a16w4(scales, 4, True))


def test_padding_of_scales(shuffle: ModuleType) -> None:
    scales = numbered(EXPERTS * ROWS, 12)
    flat, by_expert = shuffle.shuffle_scale(scales), shuffle.shuffle_scale_a16w4(scales, EXPERTS, False)
    assert tuple(flat.shape) == (256, 16)
    assert tuple(by_expert.shape) == (EXPERTS * ROWS, 16)
    back = layout().scale_back(flat.view(1, 256, 16), False)[0]
    assert torch.equal(back[: EXPERTS * ROWS, :12], scales)
    assert (layout().scale_back(by_expert.view(EXPERTS, ROWS, 16), False)[..., 12:] == 0x7F).all()
    assert shuffle.shuffle_scale(None) is None
    wide = torch.ones(2, 2)
    assert shuffle.shuffle_scale(wide) is wide


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_way_back(shuffle: ModuleType, interleaved: bool) -> None:
    weight, scales = numbered(EXPERTS, ROWS, COLUMNS), numbered(EXPERTS, ROWS, 16)
    assert torch.equal(layout().weight_back(layout().weight_forward(weight, interleaved), interleaved), weight)
    assert torch.equal(layout().scale_back(layout().scale_forward(scales, interleaved), interleaved), scales)


def test_int4_packs_eight_values_as_two_fours(shuffle: ModuleType) -> None:
    values = torch.tensor([1, 2, 3, 4, 5, 6, 7, -7], dtype=torch.int8)
    packed = shuffle.pack_int8_to_packed_int4(values)
    assert packed.view(torch.uint8).tolist() == [0x51, 0x62, 0x73, 0x94]
    assert torch.equal(layout().int4_unpack(packed), values)


def test_int4_scales_stand_by_twos(shuffle: ModuleType) -> None:
    scales = torch.arange(2 * 4 * 3).view(2, 4, 3).bfloat16()
    moved = shuffle.shuffle_scale_for_int4(scales)
    assert tuple(moved.shape) == (2, 2, 3, 2)
    assert moved[1, 1, 2].tolist() == [scales[1, 2, 2].item(), scales[1, 3, 2].item()]
    assert torch.equal(layout().int4_scale_back(moved.view(-1), 2, 4), scales)


def test_the_flag_is_of_one_object_and_the_mark_of_its_storage(shuffle: ModuleType) -> None:
    mark = import_module("aiter.standin.mark")
    ready = shuffle.shuffle_weight_a16w4(numbered(EXPERTS, ROWS, COLUMNS), 16, True)
    assert ready.is_shuffled
    assert not hasattr(ready.view(torch.int8), "is_shuffled")
    assert mark.mark_of(ready.view(torch.int8)[1:]) == mark.Mark("weight", True)
    assert mark.mark_of(ready.clone()) is None


@pytest.mark.parametrize(
    ("shape", "interleaved"), [((1, 24, 64), False), ((1, 48, 64), True), ((1, 32, 32), True), ((32, 64), False)]
)
def test_shapes_that_no_kernel_tiles(shuffle: ModuleType, shape: tuple[int, ...], interleaved: bool) -> None:
    with pytest.raises(AssertionError, match="shuffle_weight"):
        shuffle.shuffle_weight_a16w4(torch.zeros(shape, dtype=torch.uint8), 16, interleaved)
