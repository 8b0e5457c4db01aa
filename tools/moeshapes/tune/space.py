"""The space of candidates: which tiles, warps, stages and modes are tried, by tiers of token buckets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

from moeshapes.document import Document, load_document, parse_document
from moeshapes.findings import Finding, has_errors
from moeshapes.schema_check import WRONG_VALUE, check_schema

_SHIPPED = "tune/space.yaml"
_OTHER = "other"


@dataclass(frozen=True)
class Tile:
    """One choice of a stage. `end` is `fused` of stage 1, or the mode of stage 2."""

    n: int
    k: int
    warps: int
    stages: int
    end: bool | str


@dataclass(frozen=True)
class Tier:
    """What is tried at buckets up to `up_to` tokens, None for any."""

    up_to: int | None
    tile_m: tuple[int, ...]
    stage1: tuple[Tile, ...]
    stage2: tuple[Tile, ...]


@dataclass(frozen=True)
class Space:
    """`accumulators`: the most fp32 sums a thread."""

    shared_memory_kib: Mapping[str, int]
    accumulators: int
    tiers: tuple[Tier, ...]

    def tier_of(self, token: int) -> Tier:
        """What is tried at that bucket."""
        return next(tier for tier in self.tiers if tier.up_to is None or token <= tier.up_to)

    def shared_memory(self, gfx: str) -> int:
        """Bytes that a tile's pipeline may fill."""
        return 1024 * self.shared_memory_kib.get(gfx, self.shared_memory_kib[_OTHER])


def read_space(path: Path | None = None) -> tuple[Space | None, list[Finding]]:
    """The space of a file, by default the one that ships, and what is wrong with it; None where anything is."""
    if path is None:
        content = (resources.files("moeshapes") / _SHIPPED).read_bytes()
        document, findings = parse_document(content, _SHIPPED)
    else:
        document, findings = load_document(path, str(path))
    if document is None or has_errors(findings):
        return None, findings
    space, wrong = space_of(document)
    return space, findings + wrong


def space_of(document: Document) -> tuple[Space | None, list[Finding]]:
    """The space that a document is, and what is wrong with it."""
    value, findings = check_schema(document, "space")
    findings += _tier_faults(document, value.get("tiers", ()))
    return (None, findings) if has_errors(findings) else (_space(value), findings)


def _tier_faults(document: Document, tiers: list[Any]) -> Iterator[Finding]:
    """Tiers that no bucket reaches, and a last one that leaves buckets without any."""
    before = 0
    for index, tier in enumerate(tiers):
        if tier is None:
            continue
        up_to, place = tier.get("up_to"), document.place("tiers", index, "up_to")
        is_last = index == len(tiers) - 1
        if is_last != (up_to is None):
            message = "the last tier has `up_to`" if is_last else "a tier without `up_to` hides those after it"
            yield Finding(WRONG_VALUE, place, message, "Give every tier `up_to` but the last.")
        elif up_to is not None and up_to <= before:
            yield Finding(WRONG_VALUE, place, f"`up_to` is {up_to} after {before}", "Order the tiers by `up_to`.")
        before = up_to or before


def _space(value: Mapping[str, Any]) -> Space:
    tiers = (
        Tier(
            tier.get("up_to"),
            tuple(tier["tile_m"]),
            tuple(_tiles(tier["stage1"], "fused")),
            tuple(_tiles(tier["stage2"], "mode")),
        )
        for tier in value["tiers"]
    )
    return Space(value["shared_memory_kib"], value["accumulators"], tuple(tiers))


def _tiles(stage: Mapping[str, Any], end: str) -> Iterator[Tile]:
    for sizes in product(*(stage[name] for name in ("tile_n", "tile_k", "warps", "stages", end))):
        yield Tile(*sizes)
