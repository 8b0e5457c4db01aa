"""YAML as it is written by machine: the repository's own reader takes it for what was meant."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from declared import sound_document
from moeshapes.dispatch import BUCKETS
from moeshapes.findings import printable
from moeshapes.tokens import parse_tokens
from moeshapes.yaml_text import scalar, shape_text, tokens_value


@given(st.integers(-(10**9), 10**9) | st.booleans() | st.floats(1e-6, 1e6))
def test_numbers_and_truth_values_are_read_back(value: float) -> None:
    assert sound_document(f"a: {scalar(value)}\n").value == {"a": value}


@given(st.text(max_size=60))
def test_any_text_is_read_back_as_it_prints(value: str) -> None:
    assert sound_document(f"a: {scalar(value)}\n").value == {"a": printable(value)}


def test_text_that_looks_like_something_else_is_quoted() -> None:
    for text in ("1", "true", "null", "1e3", "0x10", "", "a: b", "- a", "# a", "a #b", "[a", "é"):
        assert sound_document(f"a: {scalar(text)}\n").value == {"a": text}


@given(st.sets(st.sampled_from(BUCKETS) | st.integers(1, 200), min_size=1))
def test_tokens_mean_what_they_were_made_of(tokens: set[int]) -> None:
    written = tokens_value(tokens)
    assert [token for token, _ in parse_tokens(written)] == sorted(tokens)


def test_tokens_are_written_as_people_do() -> None:
    assert tokens_value([1, 2, 4, 8]) == "1..8"
    assert tokens_value([1, 2, 16]) == [1, 2, 16]
    assert tokens_value([1, 2, 3, 4, 8, 16, 131072]) == [1, 2, 3, "4..16", 131072]


def test_comments_hold_nothing_that_ends_them() -> None:
    text = shape_text(["a\nmodel: b"], {"model": "c"}, [{"block": "target", "tokens": "1..8"}])
    value: Any = sound_document(text).value
    assert value == {"model": "c", "moe": [{"block": "target", "tokens": "1..8"}]}
