"""Mutations: an input made from a sound one, as an attacker or an accident would."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

MAX_BYTES = 1 << 16
"""Of a mutated input. What size alone does, large.py tries."""
MARKUP = "<img src=x onerror=alert(1)>"
HOSTILE = (
    *(MARKUP, "</script><script>alert(1)</script>", "<!--", "&lt;", "`", "|", "[x](javascript:alert(1))", "@everyone"),
    *("\x1b[31m", "\x1b]0;x\x07", "\x9b2J", "\u202e", "\u2028", "\ufeff", "\0", "\r", "\r\n", "\t"),
    *("::error file=a,line=1::x", "\n::add-mask::e", "##[add-mask]e", "%0A::error::x", "::stop-commands::x"),
    *("=cmd|' /C calc'!A0", "+1+1", "-1+1", "@SUM(A1)", '"', "'", ",", ";", "$(id)", "${{ github.token }}", "`id`"),
    *("../../../etc/passwd", "/etc/passwd", "..", "C:\\x", "file:///etc/passwd", "generated/../x.csv"),
    *(
        "{jndi:x}",
        "%s%n",
        "{0.x}",
        "!!python/object/apply:os.system [id]",
        "&a [*a]",
        "*a",
        "<<: *a",
        "? ",
        "---",
    ),
    *(
        "\\ud800",
        "nan",
        "inf",
        "-inf",
        "1e999",
        "-0",
        "0x10",
        "010",
        "1_000",
        "1e-400",
        "9" * 19,
        "9" * 400,
        "-1",
        "²",
        "٣",
    ),
    *("[" * 200, "{" * 200, "a" * 5000, "__proto__", "", " ", "null", "true"),
)
NUMBERS = (b"0", b"-1", b"1e-320", b"1e-17", b"1e17", b"1e308", b"1e999", b"9" * 19, b"9" * 400)
"""What can be read and not be reckoned with, as JSON, YAML and tables spell it."""
_NUMBER = re.compile(rb"(?<![\w.-])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_VALUES: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1 << 63, 10**400, 1e308, -1e308, 5e-324, float("nan"), float("inf"), "", [], {}),
    *([[]], {"": None}, "\ud800", "9" * 400, *HOSTILE),
)


def mutate(seed: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """One to four mutations of `seed`; `others` are inputs that parts may be taken from."""
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        seed = random.choice(_MUTATIONS)(seed, others, random)[:MAX_BYTES]
    return seed


def _insert(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + _token(random) + data[random.choice((start, end)) :]


def _token(random: Random) -> bytes:
    return random.choice(HOSTILE).encode("utf-8", "surrogatepass")


def _bytes(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        if changed:
            changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _cut(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _repeat(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:end] + data[start:end] * random.choice((1, 2, 30)) + data[end:]


def _splice(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    other = random.choice(others)
    return data[: _span(data, random)[0]] + other[_span(other, random)[0] :]


def _span(data: bytes, random: Random) -> tuple[int, int]:
    """A short piece, a word, or a line."""
    start = random.randint(0, len(data))
    separators = random.choice((b"", b"\n", b",", b" \n:,{}[]\"'/="))
    if not separators:
        return start, min(len(data), start + random.choice((1, 2, 8, 64)))
    before = max(data.rfind(separator, 0, start) for separator in _each(separators)) + 1
    ends = [at for separator in _each(separators) if (at := data.find(separator, start)) >= 0]
    return before, min(ends, default=len(data))


def _each(separators: bytes) -> list[bytes]:
    return [bytes([separator]) for separator in separators]


def _structure(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """A part of JSON replaced, removed, renamed or doubled; what is no JSON, by another mutation."""
    try:
        root: Any = [json.loads(data)]
    except (ValueError, RecursionError):
        return _insert(data, others, random)
    places = list(_places(root))
    container, key = random.choice(places)
    how = random.randrange(4)
    if how == 0 and container is not root:
        del container[key]
    elif how == 1 and isinstance(container, dict):
        container[random.choice(HOSTILE)] = container.pop(key)
    elif how == 2:
        source, at = random.choice(places)
        container[key] = json.loads(json.dumps(source[at]))
    else:
        container[key] = random.choice(_VALUES)
    return json.dumps(root[0]).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 2000:
        each = waiting.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
        found += [(each, key) for key in keys]
        waiting += [each[key] for key in keys]
    return found


def _number(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """A number that stands by itself, in the place of another."""
    numbers = list(_NUMBER.finditer(data))
    if not numbers:
        return _insert(data, others, random)
    start, end = random.choice(numbers).span()
    return data[:start] + random.choice(NUMBERS) + data[end:]


_MUTATIONS = (_number, _insert, _insert, _bytes, _cut, _repeat, _splice, _structure, _structure)
