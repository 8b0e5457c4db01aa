"""The legal word that a wrong one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to `word`, None if none is close."""
    from difflib import get_close_matches  # only faults need it, and start-up time counts

    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.strip().lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[close[0]] if close else None


def named_within(word: str, known: Iterable[str]) -> str | None:
    """The known word that is a part of `word`, as `us` of `total_us`; None if none is."""
    parts = word.strip().split("_")
    return next((name for name in known if name in parts), None)
