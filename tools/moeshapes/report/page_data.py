"""The data of the HTML page: shapes with their rows, deployments with their buckets, as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from moeshapes.coverage import Cell, Coverage
from moeshapes.dispatch import BUCKETS
from moeshapes.findings import Place
from moeshapes.recipe import recipe_of
from moeshapes.report.proof import Proof
from moeshapes.report.pull_request import shape_of
from moeshapes.report.speed import Change, Comparison
from moeshapes.roofline import compute_time, drawn_experts, expected_experts, read_time
from moeshapes.row import Key, TunedRow

_DIGITS = 4
"""Significant digits: more than any of the figures has, and half of a page's bytes."""


@dataclass
class Names:
    """Texts that stand in many places, each kept once and named by its number."""

    known: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        return self.known.setdefault(text, len(self.known))


def page_data(proofs: Iterable[Proof], coverages: Sequence[Coverage]) -> dict[str, Any]:
    """All that the page shows. Times in microseconds, changes in percent; texts by number in `names`.

    `shapes` are what share a key but for its bucket; `deployments` refer to them, and their buckets to rows, by number.
    """
    names = Names()
    by_row: dict[TunedRow, list[Proof]] = {}
    for proof in proofs:
        by_row.setdefault(proof.row, []).append(proof)
    groups: dict[_Group, list[TunedRow]] = {}
    for row in sorted(by_row, key=lambda row: (*_group(row.key, row.is_portable), row.key.shape.token, row.place)):
        groups.setdefault(_group(row.key, row.is_portable), []).append(row)
    shapes = [_shape(rows, by_row, names) for rows in groups.values()]
    numbers = {row.place: (s, r) for s, rows in enumerate(groups.values()) for r, row in enumerate(rows)}
    shape_numbers = {shape: number for number, shape in enumerate(groups)}
    return {
        "buckets": BUCKETS,
        "shapes": shapes,
        "deployments": [_deployment(coverage, numbers, shape_numbers, names) for coverage in coverages],
        "names": list(names.known),
    }


_Group = tuple[object, ...]


def _group(key: Key, is_portable: bool) -> _Group:
    """What rows of one chart share: a key may have a row of AITER's kernels and one of the portable ones."""
    return (*shape_of(key), is_portable)


def _shape(rows: Sequence[TunedRow], by_row: Mapping[TunedRow, list[Proof]], names: Names) -> dict[str, Any]:
    key = rows[0].key
    shape = key.shape
    recipe = recipe_of(shape.q_dtype_a, shape.q_dtype_w, shape.q_type)
    words = ["portable"] * rows[0].is_portable + [
        recipe.name if recipe else shape.q_type.partition(".")[2],
        shape.act_type.partition(".")[2].lower(),
    ]
    words += ["no gate"] * (not shape.use_g1u1) + ["weights in stage 1"] * shape.doweight_stage1
    return {
        "dims": key.shape.dims,
        "kind": " ".join(words),
        "gpu": f"{key.gfx}/{key.cu_num}",
        "roof": [_rounded(_roofline(by_row[rows[0]], bucket)) for bucket in BUCKETS],
        "rows": [_row(row, by_row[row], names) for row in rows],
    }


def _roofline(proofs: Sequence[Proof], bucket: int) -> float | None:
    """The least time: to read the experts that are hit, or to compute; None where the device's peaks are not known."""
    row = proofs[0].row
    at = replace(row.key, shape=replace(row.key.shape, token=bucket))
    if row.is_portable:  # timed under the verifier's own, skewed routing
        experts = min(drawn_experts(at.shape, proof.use.shared_experts) for proof in proofs)
    else:
        experts = expected_experts(at.shape)
    times = (read_time(at, experts), compute_time(at))
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None


def _row(row: TunedRow, proofs: Sequence[Proof], names: Names) -> dict[str, Any]:
    kernels = [names.number(name) for name in (row.kernel1, row.kernel2) if name]
    return {
        "t": row.key.shape.token,
        "f": names.number(row.place.file),
        "l": row.place.line,
        "k": kernels,
        "u": _rounded(row.us),
        **({"tag": row.tag} if row.tag else {}),
        **({"p": [_proof(proof, names) for proof in proofs]} if any(proof.record for proof in proofs) else {}),
    }


def _proof(proof: Proof, names: Names) -> dict[str, Any]:
    found: dict[str, Any] = {"use": names.number(proof.use.id), "s": proof.status}
    if proof.record:
        found |= {"d": names.number(proof.device), "nan": proof.bad_values, "det": int(bool(proof.deterministic))}
        found["e"] = _rounded(proof.over_limit)
    if proof.speed:
        found["v"] = proof.speed.verdict
        found["c"] = [_comparison(each) for each in proof.speed.comparisons]
    return found


def _comparison(comparison: Comparison) -> list[Any]:
    """Against what, verdict, both times (the other's first), the change, and that of each pass."""
    times = [_rounded(comparison.other_us), _rounded(comparison.us)]
    passes = [_change(each.change) for each in comparison.passes]
    return [comparison.against, comparison.verdict, times, _change(comparison.change), passes]


def _change(change: Change) -> list[float | None]:
    return [_rounded(100 * each) for each in (change.centre, change.low, change.high)]


def _deployment(
    coverage: Coverage,
    rows: Mapping[Place, tuple[int, int]],
    shapes: Mapping[_Group, int],
    names: Names,
) -> dict[str, Any]:
    deployment = coverage.deployment
    return {
        "name": deployment.declared.use.id,
        "dims": deployment.key.shape.dims,
        "kind": deployment.recipe.name,
        "model": deployment.shape.model,
        "tp": deployment.shape.tp,
        "ep": deployment.shape.ep,
        "gpu": f"{deployment.gpu.gfx}/{deployment.gpu.cu_num}",
        "shape": shapes.get(_group(deployment.key, deployment.is_portable)),
        "cells": [_cell(cell, rows, names) for cell in coverage.cells],
    }


def _cell(cell: Cell, rows: Mapping[Place, tuple[int, int]], names: Names) -> list[Any]:
    """Its status, why, whether a fault is to be expected, and the row's shape and number."""
    known = rows.get(cell.row.place) if cell.row else None
    return [cell.status.value, names.number(cell.note), int(cell.has_errors), *(known or ())]


def _rounded(value: float | None) -> float | None:
    """For JSON, which has no infinity."""
    return float(f"{value:.{_DIGITS}g}") if value is not None and isfinite(value) else None
