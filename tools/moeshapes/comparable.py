"""Whether the recorded times of two rows say which of them is faster (contract 7.4)."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from moeshapes.family import Entry
from moeshapes.kernel_name import parse
from moeshapes.row import LAUNCH_COLUMNS


def same_launch(one: Entry, other: Entry) -> bool:
    """Whether both rows run the same kernels in the same way."""
    return all(one.canonical(column) == other.canonical(column) for column in LAUNCH_COLUMNS)


def why_not_comparable(one: Entry, other: Entry) -> str:
    """What forbids to choose between two rows of one key by their times; empty where nothing does."""
    lost = [entry for entry in (one, other) if not (isfinite(entry.us) and entry.us > 0)]
    if lost:
        return f"{lost[0].us:g} µs is no measurement"
    if one.us == other.us and same_launch(one, other):
        return ""
    return "; ".join(_differences(one, other))


def _differences(one: Entry, other: Entry) -> Iterator[str]:
    if (one.table.name, one.tree) != (other.table.name, other.tree):
        yield "they come from different tables, so from different tuner runs"
    yield from differences_in_timing(one, other)
    if one.us == other.us:
        yield "they are equal"


def differences_in_timing(one: Entry, other: Entry) -> Iterator[str]:
    """How what the two times include differs."""
    if _as_a_whole(one) != _as_a_whole(other):
        yield "one was timed as a whole, the other stage by stage"
    if _families(one) != _families(other):
        yield f"what is timed differs between kernel families ({_families(one)}, {_families(other)})"


def _as_a_whole(entry: Entry) -> bool:
    """Whether us1 holds the time of everything, as coupled kernels and single-stage ones are recorded."""
    try:
        return float(entry.cell("us2")) == 0
    except ValueError:
        return False


def _families(entry: Entry) -> str:
    kernels = [name for name in (entry.canonical("kernelName1"), entry.canonical("kernelName2")) if name]
    return " + ".join(kernel.family if (kernel := parse(name)) else name for name in kernels)
