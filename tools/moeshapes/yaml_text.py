"""Model and shape files as text, in the style that people write them in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moeshapes.dispatch import is_reachable_bucket
from moeshapes.findings import printable
from moeshapes.scalar import plain_scalar

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _./+-]*[A-Za-z0-9]|[A-Za-z0-9]")
_WIDTH = 108


def scalar(value: object) -> str:
    """A scalar that a reader of this repository's YAML takes for the same value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    text = printable(str(value))
    if not isinstance(value, str) or (_PLAIN.fullmatch(text) and isinstance(plain_scalar(text), str)):
        return text
    return json.dumps(text, ensure_ascii=False)


def model_text(name: str, checkpoint: str, source: str, facts: Iterable[tuple[str, Any]]) -> str:
    """A model file with one block, `target`."""
    items = [f"{fact}: {scalar(value)}" for fact, value in facts]
    return (
        "# yaml-language-server: $schema=../schema/model.schema.json\n"
        f"name: {scalar(name)}\ncheckpoint: {scalar(checkpoint)}\nsource: {scalar(source)}\n"
        f"blocks:\n{_filled('  target: {', items)}\n"
    )


def _filled(start: str, items: Sequence[str]) -> str:
    """`start` and the items up to a closing brace, broken into lines that align."""
    lines, line = [], start
    for number, item in enumerate(items):
        piece = item + ("}" if number == len(items) - 1 else ", ")
        if len(line) + len(piece) > _WIDTH and line.strip() != start.strip():
            lines.append(line.rstrip())
            line = " " * len(start)
        line += piece
    return "\n".join([*lines, line])


def shape_text(comments: Iterable[str], keys: Mapping[str, object], entries: Iterable[Mapping[str, object]]) -> str:
    """A shape file; mappings and lists are written on one line."""
    lines = ["# yaml-language-server: $schema=../../schema/shape.schema.json", *(f"# {printable(c)}" for c in comments)]
    lines += [f"{key}: {flow(value)}" for key, value in keys.items()]
    lines.append("moe:")
    for entry in entries:
        for number, (key, value) in enumerate(entry.items()):
            lines.append(f"  {'-' if number == 0 else ' '} {key}: {flow(value)}")
    return "\n".join(lines) + "\n"


def flow(value: object) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def tokens_value(tokens: Iterable[int]) -> str | list[int | str]:
    """Token counts as shape files write them: runs of three or more neighbouring powers of two as a range."""
    written: list[int | str] = []
    run: list[int] = []
    for token in [*sorted(tokens), 0]:
        if run and (token != 2 * run[-1] or not is_reachable_bucket(token)):
            written += [f"{run[0]}..{run[-1]}"] if len(run) > 2 else run
            run = []
        if is_reachable_bucket(token):
            run.append(token)
        elif token:
            written.append(token)
    return written[0] if len(written) == 1 and isinstance(written[0], str) else written


def listed_tokens(tokens: Iterable[int]) -> str:
    """Token counts for a sentence: `1..64, 256`."""
    value = tokens_value(tokens)
    return value if isinstance(value, str) else ", ".join(map(str, value))
