from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.dispatch import BUCKETS
from moeshapes.tokens import Tokens, parse_tokens


def counts(value: Tokens) -> list[int | str]:
    return [token for token, _ in parse_tokens(value)]


def test_what_is_written_is_what_is_meant() -> None:
    assert counts(8) == [8]
    assert counts("1..16") == [1, 2, 4, 8, 16]
    assert counts("8192..") == [8192, 16384, 32768]
    assert counts("4..4") == [4]
    assert counts([1, "64..128", 131072, 40]) == [1, 64, 128, 131072, 40]
    assert list(parse_tokens([1, "2..4"])) == [(1, (0,)), (2, (1,)), (4, (1,))]


@pytest.mark.parametrize(
    "text", ["3..16", "1..3", "8..4", "0..8", "1..131072", "131072..", "4", "..8", "1...8", "1..8\n"]
)
def test_ranges_that_mean_nothing_are_named(text: str) -> None:
    (fault,) = counts([text])
    assert isinstance(fault, str)


POWERS = [bucket for bucket in BUCKETS if bucket <= 32768]


@given(st.lists(st.sampled_from(POWERS), min_size=2, max_size=2).map(sorted), st.booleans())
def test_a_range_is_the_powers_of_two_between_its_ends(ends: list[int], written_open: bool) -> None:
    first, last = ends[0], 32768 if written_open else ends[1]
    text = f"{first}.." if written_open else f"{first}..{last}"
    assert counts(text) == [power for power in POWERS if first <= power <= last]


@given(st.lists(st.sampled_from(POWERS), min_size=1, unique=True).map(sorted))
def test_any_set_of_buckets_survives_being_written_as_ranges(buckets: list[int]) -> None:
    written: list[int | str] = []
    for bucket in buckets:
        *_, last = written or [0]
        _, _, end = str(last).partition("..")
        if end and int(end) * 2 == bucket:
            written[-1] = f"{str(last).partition('..')[0]}..{bucket}"
        else:
            written.append(f"{bucket}..{bucket}")
    assert counts(written) == buckets
