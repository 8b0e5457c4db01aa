from __future__ import annotations

from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.cell import BAD_TIME, BAD_VALUE, KNOWN_COLUMNS, NOT_CANONICAL, offset, read_cell, sieve_of
from moeshapes.recipe import RECIPES, torch_dtype
from table_text import CELLS


@pytest.mark.parametrize("column", KNOWN_COLUMNS)
def test_sound_cells_read_as_they_stand(column: str) -> None:
    reading = read_cell(column, CELLS[column])
    assert (reading.canonical, reading.rule) == (CELLS[column], None)


@pytest.mark.parametrize("column", KNOWN_COLUMNS)
def test_sound_cells_pass_the_sieve(column: str) -> None:
    assert sieve_of(column)(CELLS[column])


@given(
    st.sampled_from((*KNOWN_COLUMNS, "lds_bytes")),
    st.text(max_size=60)
    | st.from_regex(r"[ +-]?[0-9_.eE%]{1,25}", fullmatch=True)
    | st.sampled_from(list(CELLS.values())),
)
def test_what_passes_the_sieve_is_right_as_it_is_spelled(column: str, text: str) -> None:
    if sieve_of(column)(text):
        assert (read_cell(column, text).canonical, read_cell(column, text).rule) == (text, None)
        assert text.isascii()
        assert text.isprintable()
        assert not set(text) & {",", '"', " "}
        assert not text.startswith(("-", "+"))


@given(st.sampled_from(KNOWN_COLUMNS), st.text(max_size=60) | st.from_regex(r"[ +-]?[0-9_.eE%]{1,9}", fullmatch=True))
def test_what_is_read_is_canonical(column: str, text: str) -> None:
    """A reading without a fault is the text itself (`Null` apart); a canonical spelling reads as itself."""
    reading = read_cell(column, text)
    assert reading.rule is not None or reading.canonical in (text, "")
    assert reading.canonical is not None or reading.rule is not None
    if reading.canonical:
        again = read_cell(column, reading.canonical)
        assert (again.canonical, again.rule) == (reading.canonical, None)


@pytest.mark.parametrize("column", KNOWN_COLUMNS)
@pytest.mark.parametrize(
    "text", [*CELLS.values(), "true", "dtypes.bf16", "dtypes.fp8", "QuantType.per_128x128", "silu"]
)
def test_a_cell_of_any_other_column_is_read_or_refused(column: str, text: str) -> None:
    """As shifted columns bring it about."""
    reading = read_cell(column, text)
    assert reading.canonical is not None or reading.rule in (BAD_VALUE, BAD_TIME, NOT_CANONICAL)


@given(st.sampled_from(["us", "us1", "tflops", "bw"]), st.floats(min_value=1e-9, max_value=1e15))
def test_every_number_that_pandas_writes_is_read(column: str, number: float) -> None:
    assert read_cell(column, repr(number)).rule is None


@given(st.text(alphabet="0123456789.eE+-_%naif\u0661\uff11", max_size=12))
def test_times_are_positive_finite_numbers(text: str) -> None:
    reading = read_cell("us", text)
    if reading.canonical is not None:
        assert isfinite(float(reading.canonical))
        assert float(reading.canonical) > 0
        assert reading.canonical.isascii()


@pytest.mark.parametrize("text", ["0", "0.0", "-1.5", "nan", "NaN", "inf", "-inf", "1e400", "1e-400"])
def test_measurements_that_failed(text: str) -> None:
    assert read_cell("us", text).rule is BAD_TIME


@pytest.mark.parametrize(
    "text", ["\uff11\uff12", "1_000", "0x10", "1e3", "-4", "0", "8.5", "99999999999", "eight", "1,5"]
)
def test_texts_that_are_no_size(text: str) -> None:
    assert read_cell("token", text).rule is BAD_VALUE


@pytest.mark.parametrize(
    ("column", "text", "canonical"),
    [
        ("token", "8.0", "8"),
        ("token", " 8", "8"),
        ("token", "+8", "8"),
        ("token", "008", "8"),
        ("use_g1u1", "True", "1"),
        ("doweight_stage1", "FALSE", "0"),
        ("act_type", "silu", "ActivationType.Silu"),
        ("dtype", "dtypes.bf16", "torch.bfloat16"),
        ("q_dtype_w", "dtypes.fp4x2", "torch.float4_e2m1fn_x2"),
        ("q_dtype_a", "bfloat16", "torch.bfloat16"),
        ("q_type", "per_1x32", "QuantType.per_1x32"),
        ("q_type", "QuantType.per_128x128", "QuantType.per_1x128"),
        ("us", "60.75 ", "60.75"),
    ],
)
def test_other_spellings_name_aiters(column: str, text: str, canonical: str) -> None:
    reading = read_cell(column, text)
    assert (reading.canonical, reading.rule) == (canonical, NOT_CANONICAL)
    assert f"`{canonical}`" in reading.message


def test_fp8_without_a_flavour_cannot_be_read() -> None:
    reading = read_cell("q_dtype_a", "dtypes.fp8")
    assert (reading.canonical, reading.rule) == (None, NOT_CANONICAL)
    assert "torch.float8_e4m3fnuz on gfx942" in reading.message
    assert "torch.float8_e4m3fn on gfx950" in reading.message


def test_true_is_no_count() -> None:
    assert read_cell("topk", "True").rule is BAD_VALUE


def test_unknown_columns_hold_anything() -> None:
    assert read_cell("lds_bytes", " a b ").rule is None


def test_null_is_no_second_kernel() -> None:
    assert read_cell("kernelName2", "Null").canonical == ""
    assert read_cell("kernelName1", "").rule is BAD_VALUE


@pytest.mark.parametrize("gfx", ["gfx942", "gfx950", "gfx1250"])
def test_every_recipe_is_legal(gfx: str) -> None:
    for recipe in RECIPES.values():
        assert read_cell("q_dtype_a", torch_dtype(recipe.a, gfx)).rule is None
        assert read_cell("q_dtype_w", torch_dtype(recipe.w, gfx)).rule is None
        assert read_cell("q_type", str(recipe.q_type)).rule is None


@given(st.lists(st.text(alphabet="abc", max_size=3), min_size=1), st.data())
def test_offset_is_where_the_cell_begins(cells: list[str], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(cells) - 1))
    assert ",".join(cells)[offset(cells, index) - 1 :].startswith(cells[index])
