"""Whether FlyDSL is installed, as the stand-in pretends."""

from __future__ import annotations

from ...standin.settings import SETTINGS


def is_flydsl_available() -> bool:
    return SETTINGS.flydsl
