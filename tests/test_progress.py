"""Progress off a terminal: a line each, and a forecast where one is worth it."""

from __future__ import annotations

import pytest

from moeshapes.commands.progress import forecast_of, progress


def test_each_thing_has_a_line_with_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("verify", 2) as report:
        report("one")
        report("two")
    assert capsys.readouterr().err == "verify 1/2: one\nverify 2/2: two\n"


@pytest.mark.parametrize(
    ("count", "total", "seconds", "said"),
    [
        (10, 20, 30.0, " (20 a minute, 30 s left)"),
        (1, 31, 12.0, " (5 a minute, 6 min left)"),
        (1, 2, 3.0, ""),
        (20, 20, 60.0, ""),
    ],
)
def test_rate_and_remaining_time(count: int, total: int, seconds: float, said: str) -> None:
    assert forecast_of(count, total, seconds) == said
