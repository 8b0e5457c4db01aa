"""Rules: what a finding can be about. Each has a stable id that waivers, baselines and documentation name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """How much a finding matters. Only errors change the exit status."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


RULES: dict[str, Rule] = {}


@dataclass(frozen=True)
class Rule:
    """One kind of fault. Creating a rule registers it; a second one of the same id is a programming error.

    Ids by hundreds: MOE0xx YAML documents, MOE1xx tables and rows, MOE2xx keys, MOE3xx kernels, MOE4xx generated files,
    MOE5xx verification, MOE6xx import and export.
    """

    id: str
    name: str
    severity: Severity
    what: str
    why: str
    fix: str

    def __post_init__(self) -> None:
        if self.id in RULES:
            raise ValueError(f"rule {self.id} is defined twice")
        RULES[self.id] = self
