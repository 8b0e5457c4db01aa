"""How stage 1 finds gate and up (AITER's GateMode)."""

from __future__ import annotations

from enum import Enum


class GateMode(str, Enum):
    SEPARATED = "separated"
    MOCK_GATE_ONLY = "mock_gate_only"
    GATE_ONLY = "gate_only"
    INTERLEAVE = "interleave"
