"""The token grammar of shape files: a bucket (8), powers of two (1..32768, open 2048..), or a list of these."""

from __future__ import annotations

import re
from collections.abc import Iterator

from moeshapes.dispatch import LARGEST_STEP, is_reachable_bucket
from moeshapes.document import KeyPath

Tokens = int | str | list[int | str]

_RANGE = re.compile(r"([0-9]{1,7})\.\.([0-9]{1,7})?", re.ASCII)


def parse_tokens(value: Tokens) -> Iterator[tuple[int | str, KeyPath]]:
    """Each token count of a `tokens` value with its path below it, in the order written; text for a range at fault.

    `value` has passed the schema. Counts that stand alone may be any; the ends of a range must be buckets.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from ((token, (index,)) for token in _counts(item))
    else:
        yield from ((token, ()) for token in _counts(value))


def _counts(item: int | str) -> list[int | str]:
    if isinstance(item, int):
        return [item]
    match = _RANGE.fullmatch(item)
    if not match:
        return [f"`{item}` is not a range"]
    first, last = int(match[1]), int(match[2] or LARGEST_STEP)
    if not all(is_reachable_bucket(end) and end <= LARGEST_STEP for end in (first, last)):
        return [f"the ends of `{item}` must be powers of two up to {LARGEST_STEP}"]
    if first > last:
        return [f"`{item}` runs backwards"]
    return [1 << n for n in range(first.bit_length() - 1, last.bit_length())]
