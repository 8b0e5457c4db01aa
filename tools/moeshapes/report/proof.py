"""Proofs: what the record of one (row, use) says, or that there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from moeshapes.claim import judged_uses
from moeshapes.expand import Declarations
from moeshapes.report.evidence import Evidence
from moeshapes.report.speed import Speed, speed_of
from moeshapes.row import TunedRow
from moeshapes.statement import Statement
from moeshapes.use import Use

NO_RECORD = "no record"


@dataclass(frozen=True)
class Proof:
    """A row under one use. `declared` says whether a shape file declares the use."""

    row: TunedRow
    use: Use
    declared: bool
    record: Mapping[str, Any] | None

    @cached_property
    def said(self) -> Statement | None:
        return Statement(self.record) if self.record else None

    @property
    def status(self) -> str:
        return self.said.status if self.said else NO_RECORD

    @cached_property
    def speed(self) -> Speed | None:
        return speed_of(self.record) if self.record else None

    @property
    def verdict(self) -> str:
        """Of its speed; empty where it was not timed."""
        return self.speed.verdict if self.speed else ""

    @property
    def bad_values(self) -> int | None:
        """NaN and Inf at the worst token count, None without a record."""
        return self.said.worst_bad_values if self.said else None

    @property
    def deterministic(self) -> bool | None:
        """Whether all runs of a call were bitwise equal, None without a record."""
        return self.said.deterministic if self.said else None

    @property
    def spread(self) -> float:
        """The largest difference between runs of one call, as a share of the limit."""
        return self.said.spread if self.said else 0.0

    @property
    def over_limit(self) -> float:
        """The worst error as a share of its limit, infinite where there are NaN or no record."""
        return self.said.over_limit if self.said else inf

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(self.record["reasons"]) if self.record else ()

    @property
    def baseline(self) -> Mapping[str, Any] | None:
        """What the record says of what runs without the row."""
        return self.record["numerics"]["baseline"] if self.record else None

    @property
    def emulated(self) -> bool:
        """Whether the record is of arithmetic in plain torch, and no kernel ran."""
        return self.record is not None and self.record["backend"] == "emulate"

    @property
    def device(self) -> str:
        """`NVIDIA H200 sm_90/132`, or that it was emulated."""
        if self.record is None:
            return NO_RECORD
        device = self.record["device"]
        where = f"{device['board']} {device['gfx']}/{device['cu_num']}" if device["kind"] == "gpu" else "a CPU"
        return f"emulated on {where}" if self.emulated else where


def proofs_of(rows: Iterable[TunedRow], declarations: Declarations, evidence: Evidence) -> Iterator[Proof]:
    """Every row under each use that it is judged under."""
    for row in rows:
        declared = bool(declarations.uses_of(row))
        for use in judged_uses(row, declarations):
            yield Proof(row, use, declared, evidence.of(row, use))
