"""What the stand-in says to a tensor or an argument that AITER's kernels would misread."""

from __future__ import annotations


class StandinRefused(AssertionError):  # noqa: N818 - it says what was done, and is caught by that name
    """The call is not as AITER's contract wants it: which argument, and what is wrong with it."""


def require(holds: bool, message: str) -> None:
    """Raises StandinRefused with the message unless it holds."""
    if not holds:
        raise StandinRefused(message)
