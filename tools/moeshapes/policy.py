"""Kernel policies: which kernels a shape file forbids on the tuned rows of its shapes, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moeshapes.findings import Place


@dataclass(frozen=True)
class Deny:
    """Kernels with every field of `match` (names and types: `kernel_name.POLICY_FIELDS`) are refused for `reason`."""

    match: Mapping[str, object]
    reason: str
    place: Place
