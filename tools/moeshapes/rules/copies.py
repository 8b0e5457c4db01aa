"""Rules about times that stand in more than one row: at most one of those rows was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence

from moeshapes.findings import Finding
from moeshapes.roofline import flops
from moeshapes.row import Key, TunedRow
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import FALLBACK_TAG, Tables, check_tables, without_token

COPIED_TOKENS = Rule(
    "MOE154", "time-of-other-tokens", Severity.WARNING,
    what="A row has the very times of another token count of its shape.",
    why="It was copied, not measured: the kernel was the best of another bucket, and comparisons with it mean nothing.",
    fix="Tune the bucket, or leave it out.",
)  # fmt: skip
COPIED_SHAPE = Rule(
    "MOE155", "time-of-other-shape", Severity.WARNING,
    what="A row has the very times of a row of another shape.",
    why="It was re-keyed, not measured: it says nothing of this shape.",
    fix="Tune the shape, or leave it out.",
)  # fmt: skip
CLONED_DEVICE = Rule(
    "MOE156", "time-of-other-device", Severity.WARNING,
    what="A row has the very times of a row of another architecture or compute unit count.",
    why="It was cloned, not measured: another device has another best kernel and another time.",
    fix="Tune on the device, or leave the row out.",
)  # fmt: skip

_SHOWN = 6


def _of_other_tokens(key: Key) -> Hashable:
    return without_token(key)


def _of_other_shape(key: Key) -> Hashable:
    return key.gfx, key.cu_num, key.shape.token


def _of_other_device(key: Key) -> Hashable:
    return key.shape


_KINDS: tuple[tuple[Rule, Callable[[Key], Hashable]], ...] = (
    (COPIED_TOKENS, _of_other_tokens),
    (COPIED_SHAPE, _of_other_shape),
    (CLONED_DEVICE, _of_other_device),
)
"""Each rule, and what rows must have in common besides their times for it to be about them."""


@check_tables
def copies(tables: Tables) -> Iterator[Finding]:
    rows = [row for row in tables.rows if row.tag != FALLBACK_TAG]
    for rule, common in _KINDS:
        groups: dict[Hashable, list[TunedRow]] = defaultdict(list)
        for row in rows:
            groups[common(row.key), row.us1, row.us2, row.us].append(row)
        for same in groups.values():
            if len({row.key for row in same}) > 1:
                yield from _copies(rule, same)


def _copies(rule: Rule, same: Sequence[TunedRow]) -> Iterator[Finding]:
    """A finding at each row but the one that was measured, where that can be told."""
    measured = [row for row in same if _agrees(row)]
    source = measured[0] if len(measured) == 1 else None
    for row in same:
        if row is not source:
            others = [source] if source else [other for other in same if other.key != row.key]
            listed = ", ".join(f"{_told_apart(rule, other.key)} at {other.place}" for other in others[:_SHOWN])
            more = f" and {len(others) - _SHOWN} more" if others[_SHOWN:] else ""
            yield Finding(rule, row.place, f"{row.us:g} µs, as {listed}{more}")


def _agrees(row: TunedRow) -> bool:
    """Whether tflops is that of the row's own key."""
    expected = flops(row.key.shape) / row.us / 1e6
    return abs(float(row.tflops or 0) - expected) <= max(0.006, 0.005 * expected)


def _told_apart(rule: Rule, key: Key) -> str:
    shape = key.shape
    if rule is COPIED_TOKENS:
        return f"{shape.token} tokens"
    return str(key) if rule is COPIED_SHAPE else f"{key.gfx}/{key.cu_num}"
