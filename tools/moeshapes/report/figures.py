"""Figures as people read them: changes with their interval, microseconds."""

from __future__ import annotations

from math import isfinite

from moeshapes.report.speed import Change
from moeshapes.row import TunedRow

_LARGE = 1000.0
_NARROW = 0.01
_MINUS = "\N{MINUS SIGN}"


def percent(share: float) -> str:
    """`−12.3 %`, `+0.4 %`: a share with its sign."""
    text = f"{100 * share:+.1f}"
    return ("0.0" if float(text) == 0 else text.replace("-", _MINUS)) + " %"


def with_interval(change: Change) -> str:
    """`−12.3 % ± 0.4`: the change and half its 95 % interval, in percent."""
    half = 100 * change.half_width
    return f"{percent(change.centre)} ± {f'{half:.2g}' if half >= _NARROW else f'<{_NARROW}'}"


def interval(change: Change) -> str:
    """`−12.7 % to −11.9 %`."""
    return f"{percent(change.low)} to {percent(change.high)}"


def microseconds(us: float) -> str:
    """Four significant digits, and no fraction of a large time; `unreadable` for what is no time."""
    if not isfinite(us):
        return "unreadable"
    return f"{us:.4g}" if abs(us) < _LARGE else f"{us:.0f}"


def recorded(row: TunedRow) -> str:
    """`35.8 (20.1 + 15.7)`: the table's own time, and those of both stages where they were timed apart."""
    stages = f" ({microseconds(row.us1)} + {microseconds(row.us2)})" if row.us2 else ""
    return microseconds(row.us) + stages
