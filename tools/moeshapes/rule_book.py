"""The rule book: every rule there is, and the page that documents them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from moeshapes.rule import RULES, Rule

_MODULES = (
    "adopt",
    "baseline",
    "document",
    "expand",
    "generate",
    "keys",
    "lint",
    "reach",
    "repository",
    "selection",
    "waiver",
)
"""Modules that, with what they import, define every rule. A test compares them with the package."""


def all_rules() -> Mapping[str, Rule]:
    """Every rule by its id, in the order of ids."""
    for name in _MODULES:
        importlib.import_module(f"moeshapes.{name}")
    return dict(sorted(RULES.items()))
