"""Statements: what a record says, read. Its errors are shares of the protocol's limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moeshapes.report.speed import Speed, speed_of

PROVEN, EMULATED, FAIL = "proven", "emulated", "fail"


@dataclass(frozen=True)
class Statement:
    """A record that keeps to the schema."""

    record: Mapping[str, Any]

    @property
    def status(self) -> str:
        return str(self.record["status"])

    def judged_at(self) -> datetime:
        """When, UTC. Raises ValueError where there is no such day or hour."""
        return datetime.fromisoformat(self.record["time"])

    @property
    def _counts(self) -> Mapping[str, Mapping[str, Any]]:
        counts: Mapping[str, Mapping[str, Any]] = self.record["numerics"]["counts"]
        return dict(sorted(counts.items(), key=lambda item: int(item[0])))

    @property
    def bad_values(self) -> Mapping[str, int]:
        """How many NaN and Inf there were at each token count that had some."""
        return {tokens: count["bad_values"] for tokens, count in self._counts.items() if count["bad_values"]}

    @property
    def worst_bad_values(self) -> int:
        """How many there were at the token count that had the most."""
        return max(self.bad_values.values(), default=0)

    @property
    def not_deterministic(self) -> Sequence[str]:
        """The token counts at which runs of one call gave different bits."""
        return [tokens for tokens, count in self._counts.items() if not count["deterministic"]]

    @property
    def deterministic(self) -> bool:
        """Whether all runs of a call were bitwise equal, at each token count."""
        return not self.not_deterministic

    @property
    def spread(self) -> float:
        """The largest difference between runs of one call, as a share of the limit."""
        return max(float(count["spread"]) for count in self._counts.values())

    @property
    def over_limit(self) -> float:
        """The worst token's and block's error, infinite where there are NaN."""
        return max(float(count[name]) for count in self._counts.values() for name in ("over_limit", "block_over_limit"))

    @property
    def limit(self) -> tuple[object, object]:
        """What errors are shares of: those of one limit can be compared."""
        numerics = self.record["numerics"]
        return numerics["protocol"], numerics["compared_with"]

    @property
    def numerics_protocol(self) -> int:
        return int(self.record["numerics"]["protocol"])

    @property
    def aiter(self) -> str:
        """The AITER whose kernels ran, empty where none did."""
        return str(self.record["versions"].get("aiter", ""))

    def speed(self, protocol: int) -> Speed | None:
        """How fast it is, where it was timed in a way no older than `protocol`."""
        speed = speed_of(self.record)
        return speed if speed and speed.protocol >= protocol else None
