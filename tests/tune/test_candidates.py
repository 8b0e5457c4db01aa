"""Candidates are kernels that the backend runs, that their shapes allow, and whose tiles fit."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from moeshapes.findings import Place
from moeshapes.kernel_name import parse
from moeshapes.policy import Deny
from moeshapes.portable import default_launch, kernel_faults
from moeshapes.recipe import RECIPES
from moeshapes.row import Key, UntunedRow
from moeshapes.rules import lint_rows
from moeshapes.tune.candidates import candidates_of, pipeline_bytes, row_of
from moeshapes.tune.space import Space, Tier, Tile, read_space
from small_repository import portable_row

SUPPORTED = ("bf16", "fp8_token", "fp8_block", "mxfp8", "a8w4", "a16w4", "a4w4")
SHIPPED = read_space()[0]
assert SHIPPED is not None


def key(token: int = 8, **changes: object) -> Key:
    row = portable_row(8)
    return replace(row.key, shape=replace(row.key.shape, token=token, **changes))  # type: ignore[arg-type]


def space(**sizes: list[int]) -> Space:
    """Of one tile a stage, but for what is given."""
    n, k, warps, stages = (sizes.get(name, [default]) for name, default in (("n", 64), ("k", 64), ("w", 4), ("s", 2)))
    tiles = [Tile(a, b, c, d, False) for a in n for b in k for c in warps for d in stages]
    seconds = tuple(replace(tile, end="reduce") for tile in tiles)
    return Space({"other": 99}, 128, (Tier(None, tuple(sizes.get("m", [16])), tuple(tiles), seconds),))


@given(
    st.sampled_from(SUPPORTED),
    st.sampled_from([1, 8, 64, 256, 2048, 32768]),
    st.sampled_from([640, 512, 2048, 704]),
    st.sampled_from(["sm_90", "gfx942", "gfx1200"]),
)
def test_whatever_ships_runs(recipe: str, token: int, inter_dim: int, gfx: str) -> None:
    what = RECIPES[recipe]
    asked = Key(gfx, 132, key(token, model_dim=5120, inter_dim=inter_dim).shape)
    assert SHIPPED
    found = candidates_of(SHIPPED, asked, what)
    assert found
    for each in found:
        for name in (*each.firsts, *each.seconds, each.plain_second):
            kernel = parse(name)
            assert kernel
            assert (kernel.a, kernel.w, kernel.tile_m) == (what.a, what.w, each.block_m)
            assert not list(kernel_faults(kernel, what))
            assert pipeline_bytes(kernel, what) <= SHIPPED.shared_memory(gfx) or name == each.plain_second
        assert len(set(each.firsts)) == len(each.firsts)


def test_tiles_divide_where_any_does() -> None:
    (found,) = candidates_of(space(n=[64, 128, 256], k=[64, 256]), key(model_dim=5120, inter_dim=640), RECIPES["a4w4"])
    assert {(name.tile_n, name.tile_k) for each in found.firsts if (name := parse(each))} == {
        (64, 64), (128, 64), (64, 256), (128, 256),
    }  # fmt: skip
    assert {name.tile_k for each in found.seconds if (name := parse(each))} == {64}


def test_tiles_that_waste_are_tried_where_none_divides() -> None:
    (found,) = candidates_of(space(n=[128, 256]), key(inter_dim=320), RECIPES["a4w4"])
    assert {name.tile_n for each in found.firsts if (name := parse(each))} == {128}


def test_tiles_have_no_more_rows_than_there_are_slots() -> None:
    def rows_at(token: int) -> list[int]:
        found = candidates_of(space(m=[16, 32, 64]), key(token, topk=2), RECIPES["a4w4"])
        return [each.block_m for each in found]

    assert [rows_at(token) for token in (1, 8, 16, 32)] == [[16], [16], [16, 32], [16, 32, 64]]


def test_too_many_sums_a_thread_are_left_out() -> None:
    wide = key(512, model_dim=1024, inter_dim=1024)
    assert candidates_of(space(n=[256], m=[16]), wide, RECIPES["a4w4"])
    assert not candidates_of(space(n=[256], m=[128]), wide, RECIPES["a4w4"])


def test_too_much_shared_memory_is_left_out() -> None:
    bf16 = key(model_dim=1024, inter_dim=1024)
    assert candidates_of(space(n=[64], k=[128], s=[2, 8]), bf16, RECIPES["bf16"])[0].firsts == (
        "triton_moe1_abf16_wbf16_bf16_t16x64x128_w4_s2",
    )


def test_what_a_shape_denies_is_left_out() -> None:
    denied = [Deny({"stage": 2, "tile_n": 128}, "because", Place("x.yaml"))]
    (found,) = candidates_of(space(n=[64, 128]), key(), RECIPES["a4w4"], denied)
    assert {name.tile_n for each in found.seconds if (name := parse(each))} == {64}
    assert len(found.firsts) == 2


def test_stage_1_is_fused_for_recipes_that_read_it_alone() -> None:
    assert SHIPPED
    for recipe, ends in (("a8w4", {None, "fp8"}), ("a4w4", {None, "fp4"}), ("a16w4", {None}), ("bf16", {None})):
        (found,) = candidates_of(SHIPPED, key(8, model_dim=5120, inter_dim=640), RECIPES[recipe])
        assert {name.out_quant for each in found.firsts if (name := parse(each))} == ends


def test_stage_1_is_tried_with_the_defaults_stage_2() -> None:
    asked = key(8)
    (found,) = candidates_of(space(), asked, RECIPES["a4w4"])
    assert found.plain_second == default_launch(RECIPES["a4w4"], 8)["kernelName2"]


def test_a_row_is_sound_with_any_time() -> None:
    shape: UntunedRow = key().shape
    (found,) = candidates_of(space(), key(), RECIPES["a4w4"])
    row = row_of(key(), (found.firsts[0], found.seconds[0]), 12.34567, Place("tune", 1))
    assert (row.us, row.us1, row.us2, row.block_m) == (12.3457, 12.3457, 0.0, 16)
    assert float(row.tflops) == round(6 * 8 * shape.topk * shape.model_dim * shape.inter_dim / 12.3457 / 1e6, 2)
    assert not [each for each in lint_rows([row]) if each.rule.severity.value == "error"]
