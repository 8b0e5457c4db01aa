"""The legal word that a wrong one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to `word`, or one that is a part of it (`us` of `total_us`); None if none is close."""
    from difflib import get_close_matches  # only faults need it, and start-up time counts

    by_lower = {name.lower(): name for name in known}
    wanted = word.strip().lower()
    parts = [part for part in wanted.replace(".", "_").split("_") if part in by_lower]
    close = get_close_matches(wanted, by_lower, n=1, cutoff=0.7) or parts[-1:]
    return by_lower[close[0]] if close else None
