from __future__ import annotations

import math
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.scalar import plain_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("+12", 12),
        ("-0", 0),
        ("1_000", "1_000"),
        ("yes", "yes"),
        ("off", "off"),
        ("y", "y"),
        ("TRUE", True),
        ("tRue", "tRue"),
        ("~", None),
        ("", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("1:30", "1:30"),
        ("2001-01-01", "2001-01-01"),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5e-3", 0.0005),
        ("1e3", 1000.0),
        ("-.INF", -math.inf),
        ("inf", "inf"),
        ("1..32768", "1..32768"),
        ("2048..", "2048.."),
        ("0b11", "0b11"),
        ("٣", "٣"),
        ("=", "="),
        ("<<", "<<"),
    ],
)
def test_core_schema(text: str, value: object) -> None:
    read = plain_scalar(text)
    assert (read, type(read)) == (value, type(value))


class CoreLoader(yaml.SafeLoader):
    """An independent reading: PyYAML's resolver, given the patterns of YAML 1.2.2 as section 10.3.2 has them."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for kind, pattern in (
    ("null", "null|Null|NULL|~"),
    ("bool", "true|True|TRUE|false|False|FALSE"),
    ("int", "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"),
    ("float", r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN"),
):
    CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(rf"^(?:{pattern})$", re.ASCII), None)

PIECES = [
    "0",
    "1",
    "9",
    "0o",
    "0x",
    "7",
    "8",
    "F",
    "e",
    "E",
    ".",
    "+",
    "-",
    "_",
    ":",
    "inf",
    "nan",
    "NaN",
    "true",
    "no",
    "~",
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join))
def test_kind_as_an_independent_resolver_says(text: str) -> None:
    tag: str = CoreLoader("").resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    kinds = {"null": type(None), "bool": bool, "int": int, "float": float, "str": str}
    assert type(plain_scalar(text)) is kinds[tag.rpartition(":")[2]]


@given(st.integers())
def test_integers_are_read_back(number: int) -> None:
    assert plain_scalar(str(number)) == number
    assert plain_scalar(f"0x{abs(number):x}") == abs(number)
    assert plain_scalar(f"0o{abs(number):o}") == abs(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_read_back(number: float) -> None:
    assert plain_scalar(repr(number)) == number
