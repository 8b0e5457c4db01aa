from __future__ import annotations

from math import nan

import pytest

from moeshapes.report.figures import interval, microseconds, percent, recorded, with_interval
from moeshapes.report.speed import Change
from table_text import row


@pytest.mark.parametrize(
    ("share", "shown"), [(-0.123, "−12.3 %"), (0.004, "+0.4 %"), (0.0, "0.0 %"), (-0.0004, "0.0 %"), (1.5, "+150.0 %")]
)
def test_a_share_is_shown_with_its_sign(share: float, shown: str) -> None:
    assert percent(share) == shown


def test_a_change_is_shown_with_its_interval() -> None:
    change = Change.of_ratio(0.88, 0.876, 0.884)
    assert with_interval(change) == "−12.0 % ± 0.4"
    assert with_interval(Change.of_ratio(0.88, 0.88, 0.88)) == "−12.0 % ± <0.01"
    assert interval(change) == "−12.4 % to −11.6 %"


@pytest.mark.parametrize(("us", "shown"), [(35.8483, "35.85"), (1.0, "1"), (123456.2, "123456"), (nan, "unreadable")])
def test_microseconds(us: float, shown: str) -> None:
    assert microseconds(us) == shown


def test_a_row_shows_its_shape_and_both_stages() -> None:
    assert row().key.shape.dims == "6144/512/257/9"
    assert recorded(row()) == "60.75 (40.5 + 20.25)"
    assert recorded(row(us="9.5", us1="9.5", us2="0")) == "9.5"
