from __future__ import annotations

from math import sqrt

import pytest

from moeshapes.report.speed import BASELINE, REPLACED, speed_of
from report_samples import one_pass, speed


def test_a_row_that_was_not_timed_has_no_speed() -> None:
    assert speed_of({"speed": None}) is None


def test_the_change_is_the_mean_of_the_passes_and_the_hull_of_their_intervals() -> None:
    facts = speed(0.9)
    facts["comparisons"][0]["passes"] = [one_pass(0.8, margin=0.01), one_pass(0.9, margin=0.02)]
    found = speed_of({"speed": facts})
    assert found
    comparison = found.against(BASELINE)
    assert comparison
    assert comparison.change.centre == pytest.approx(sqrt(0.8 * 0.9) - 1)
    assert (comparison.change.low, comparison.change.high) == pytest.approx((0.79 - 1, 0.92 - 1))
    assert found.against(REPLACED) is None
    assert (comparison.us, comparison.other_us) == pytest.approx((30.0, (30 / 0.8 + 30 / 0.9) / 2))


@pytest.mark.parametrize("ratio", [5e-324, 1e-17, 1e308])
def test_a_ratio_beyond_reason_is_shown_as_it_is(ratio: float) -> None:
    facts = speed(0.9)
    facts["comparisons"][0]["passes"] = [one_pass(0.9) | {"ratio": ratio}] * 2
    found = speed_of({"speed": facts})
    assert found
    assert found.comparisons[0].change.centre == pytest.approx(ratio - 1)


def test_the_noise_floor_is_the_far_end_of_the_worst_interval_of_identical_arms() -> None:
    found = speed_of({"speed": speed(0.9, replaced=1.0)})
    assert found
    assert found.noise_floor == pytest.approx(0.0026)
    assert found.against(REPLACED)
