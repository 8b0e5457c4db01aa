"""Traces of the PyTorch profiler: GPU kernels, the annotations around them, and the launches that link both."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moeshapes.findings import Finding, Place
from moeshapes.report.serving_rules import BAD_TRACE

MAX_BYTES = 2 << 30
"""Of a trace, unpacked: ten decode steps of a large model with all CPU operators have some hundred MB."""
_NO_TIME_US = 1e18
"""Thirty thousand years. JSON has integers that are no floats, and Python's reader takes NaN and Infinity."""
_GZIP = b"\x1f\x8b"
_KERNEL, _GPU_RANGE, _RANGE, _LAUNCHES = (
    "kernel",
    "gpu_user_annotation",
    "user_annotation",
    ("cuda_runtime", "cuda_driver"),
)


@dataclass(frozen=True)
class Event:
    """Something with a duration, in microseconds of the trace's clock. `correlation` links a launch to its kernels."""

    name: str
    start: float
    end: float
    correlation: int | None = None


@dataclass(frozen=True)
class Trace:
    """One GPU's kernels, and annotations as the GPU and as the CPU saw them; each in the order of its starts."""

    file: str
    kernels: tuple[Event, ...]
    gpu_ranges: tuple[Event, ...]
    cpu_ranges: tuple[Event, ...]
    launches: tuple[Event, ...]


def read_trace(path: Path) -> Trace | Finding:
    """The trace in a file of JSON, as it is or packed by gzip. Raises OSError."""
    place = Place(str(path))
    try:
        events = _events(json.loads(_content(path)))
    except (ValueError, RecursionError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        return Finding(BAD_TRACE, place, f"not a trace: {str(error)[:160]}")
    by_category: dict[str, list[tuple[object, Event]]] = {}
    for event in events:
        by_category.setdefault(event["cat"], []).append(_event(event))
    kernels = by_category.get(_KERNEL, [])
    if not kernels:
        return Finding(BAD_TRACE, place, "the trace has no GPU kernel")
    device = min(str(device) for device, _ in kernels)
    of_device = [event for device_of, event in kernels if str(device_of) == device]
    ranges = [event for device_of, event in by_category.get(_GPU_RANGE, []) if str(device_of) == device]
    launches = [event for name in _LAUNCHES for _, event in by_category.get(name, [])]
    cpu_ranges = [event for _, event in by_category.get(_RANGE, [])]
    return Trace(str(path), *map(_in_order, (of_device, ranges, cpu_ranges, launches)))


def _content(path: Path) -> bytes:
    with path.open("rb") as stream:
        packed = stream.read(len(_GZIP)) == _GZIP
    with gzip.open(path) if packed else path.open("rb") as stream:
        content: bytes = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES >> 30} GiB unpacked")
    return content


def _events(value: object) -> Iterator[Mapping[str, Any]]:
    """The complete events of the categories that matter, where all that is read of them is sound."""
    listed = value.get("traceEvents") if isinstance(value, dict) else value
    if not isinstance(listed, list):
        raise ValueError("no list of traceEvents")
    wanted = {_KERNEL, _GPU_RANGE, _RANGE, *_LAUNCHES}
    return (
        event for event in listed if isinstance(event, dict) and str(event.get("cat")) in wanted and _is_sound(event)
    )


def _is_sound(event: Mapping[str, Any]) -> bool:
    times = (event.get("ts"), event.get("dur"))
    timed = all(isinstance(time, int | float) and abs(time) < _NO_TIME_US for time in times)
    return event.get("ph") == "X" and timed and event["dur"] >= 0 and isinstance(event.get("name"), str)


def _event(event: Mapping[str, Any]) -> tuple[object, Event]:
    """The GPU that an event is of, and the event."""
    facts = event.get("args")
    facts = facts if isinstance(facts, dict) else {}
    correlation = facts.get("correlation")
    known = correlation if isinstance(correlation, int) else None
    start = float(event["ts"])
    device = facts.get("device", event.get("pid"))
    return device, Event(event["name"], start, start + float(event["dur"]), known)


def _in_order(events: Sequence[Event]) -> tuple[Event, ...]:
    return tuple(sorted(events, key=lambda event: event.start))
