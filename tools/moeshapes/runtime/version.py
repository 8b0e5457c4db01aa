"""Rules of AITER's lookup that changed: since when each holds, and what held before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class RuleChange:
    """A change of a rule in AITER's main branch: the day and commit that brought it."""

    since: date
    commit: str
    now: str
    before: str


ANY_ACTIVATION = RuleChange(
    date(2026, 5, 9), "446260d19a",
    "a row serves calls of any activation: the first of the merged table",
    "a row serves calls of its own activation alone",
)  # fmt: skip
TOP_BUCKET = RuleChange(
    date(2026, 5, 9), "446260d19a",
    "131072 tokens and more look up 131072, and 32768 where that is missing",
    "32768 tokens and more look up 32768",
)  # fmt: skip
SENTINEL_SLOT = RuleChange(
    date(2026, 6, 5), "7a8ff7dd4a",
    "with an expert mask, top-k in the key is the width of topk_ids minus 1",
    "top-k in the key is the width of topk_ids, with or without an expert mask",
)  # fmt: skip
FLYDSL_BY_DEFAULT = RuleChange(
    date(2026, 6, 5), "7a8ff7dd4a",
    "without a row, FlyDSL serves fp4 and fp8 activations of every activation function",
    "without a row, FlyDSL serves a4w4 swiglu alone",
)  # fmt: skip
GFX_IN_KEY = RuleChange(
    date(2026, 6, 13), "ad73ecb5fa",
    "a row serves its own architecture",
    "a row serves every architecture with its number of compute units",
)  # fmt: skip
FALLBACK_ROWS_DROPPED = RuleChange(
    date(2026, 7, 8), "eaef170f42",
    "rows tagged flydsl_fallback are never used",
    "rows tagged flydsl_fallback serve where FlyDSL is missing",
)  # fmt: skip
NARROW_CK = RuleChange(
    date(2025, 12, 10), "e69f59bd20",
    "CK's own choice has narrower tiles for inter_dim up to 192",
    "CK's own choice has tiles 128 wide at block_m 64 and more, which do not divide inter_dim 192",
)  # fmt: skip
CHANGES = (
    NARROW_CK,
    ANY_ACTIVATION,
    TOP_BUCKET,
    SENTINEL_SLOT,
    FLYDSL_BY_DEFAULT,
    GFX_IN_KEY,
    FALLBACK_ROWS_DROPPED,
)
"""In the order of their days. Source: the history of aiter/fused_moe.py and of CK's gen_instances.py."""

KNOWN_UNTIL = date(2026, 8, 22)
"""The day of AITER e4048607a5, whose rules are the newest that are known here."""


@dataclass(frozen=True)
class Version:
    """AITER's main branch as of a day."""

    day: date = KNOWN_UNTIL

    def has(self, change: RuleChange) -> bool:
        return self.day >= change.since

    def rule(self, change: RuleChange) -> str:
        """What holds, in words."""
        if self.has(change):
            return f"{change.now} (since {change.since}, {change.commit})"
        return f"{change.before} (until {change.since}, {change.commit})"
