from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.selection import select_rows
from table_text import line, table

SOURCE = table(
    line(), line(token="16"), line(token="32", inter_dim="256"), line(token="x"), "", line(token="64", us="0")
)


def selected(*selectors: str) -> list[int]:
    rows, findings = select_rows(SOURCE, selectors)
    assert findings == []
    return [row.place.line for row in rows]


@pytest.mark.parametrize(
    ("selectors", "lines"),
    [
        (["2"], [2]),
        (["4", "2", "2"], [2, 4]),
        (["token=16"], [3]),
        (["token=8,inter_dim=512"], [2]),
        (["inter_dim=512"], [2, 3]),
        (["act_type=Silu"], [2, 3, 4]),
        (["act_type=ActivationType.Silu,cu_num=256,gfx=gfx950,block_m=32,_tag="], [2, 3, 4]),
        (["inter_dim=256", "3"], [3, 4]),
    ],
)
def test_selectors(selectors: list[str], lines: list[int]) -> None:
    assert selected(*selectors) == lines


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("token", "`token`: `token` is neither a line number nor `column=value`"),
        ("tokn=8", "`tokn=8`: there is no column `tokn`: did you mean `token`?"),
        ("token=128", "`token=128`: no row of a_tuned_fmoe.csv matches"),
        ("9" * 5000, f"`{'9' * 5000}`: `{'9' * 5000}` is neither a line number nor `column=value`"),
        ("99", "`99`: a_tuned_fmoe.csv has no such line under its header"),
        ("1", "`1`: a_tuned_fmoe.csv has no such line under its header"),
        ("5", "`token` is `x`, not a whole number from 1 to 16777216"),
        ("6", "the line is blank"),
        ("7", "`us` is 0 µs"),
    ],
)
def test_selectors_that_select_nothing_say_why(selector: str, message: str) -> None:
    rows, findings = select_rows(SOURCE, [selector])
    assert rows == []
    assert [finding.message for finding in findings] == [message]


def test_all_faults_of_a_selector_are_found() -> None:
    _, findings = select_rows(SOURCE, ["tokn=8,x", "token=16"])
    assert len(findings) == 2


def test_without_selectors_all_rows_and_what_kept_others_out() -> None:
    rows, findings = select_rows(SOURCE, [])
    assert [row.place.line for row in rows] == [2, 3, 4]
    assert [finding.place.line for finding in findings] == [5, 7]


@given(st.text(max_size=30))
def test_any_selector_selects_or_is_faulted(selector: str) -> None:
    rows, findings = select_rows(SOURCE, [selector])
    assert bool(rows) != bool(findings)
