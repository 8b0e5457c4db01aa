from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moeshapes.spelling import named_within, nearest

COLUMNS = ("token", "us", "us1", "kernelName1", "_tag")


def test_close_words() -> None:
    assert nearest("tokn", COLUMNS) == "token"
    assert nearest(" kernelname1", COLUMNS) == "kernelName1"
    assert nearest("lds_bytes", COLUMNS) is None


def test_words_within_words() -> None:
    assert named_within("total_us", COLUMNS) == "us"
    assert named_within("status", COLUMNS) is None


@given(st.text(max_size=20))
def test_only_known_words_are_suggested(word: str) -> None:
    assert nearest(word, COLUMNS) in (None, *COLUMNS)
    assert named_within(word, COLUMNS) in (None, *COLUMNS)
