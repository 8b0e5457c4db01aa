"""Rows, and the text of their cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.row import UntunedRow
from table_text import row


@given(st.builds(UntunedRow))
def test_a_row_is_that_of_its_cells(shape: UntunedRow) -> None:
    assert UntunedRow.of_cells(shape.cells()) == shape


@pytest.mark.parametrize("cells", [[], ["1"] * 11, ["1"] * 13, ["a", *["1"] * 11], [*["1"] * 11, ""]])
def test_what_are_no_cells_of_a_row_are_refused(cells: list[str]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (Python's own words)
        UntunedRow.of_cells(cells)


def test_dims_are_written_as_in_keys() -> None:
    key = row().key
    assert key.shape.dims == "6144/512/257/9"
    assert f" {key.shape.dims} " in str(key)
