"""Gaps that are new since a base: token buckets of a deployment whose calls found a row, and find none any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from moeshapes.coverage import Coverage, cover
from moeshapes.deployment import Deployment, deployments
from moeshapes.expand import Declarations
from moeshapes.family import OWN_CONFIGS, Family
from moeshapes.findings import Finding
from moeshapes.gate.base import Base
from moeshapes.gate.tree import WorkingTree
from moeshapes.repository import MODELS, SHAPES
from moeshapes.row import Key, UntunedRow
from moeshapes.row_diff import RowDiff
from moeshapes.rule import Rule, Severity
from moeshapes.runtime.merged import merge
from moeshapes.yaml_text import listed_tokens

NEW_GAP = Rule(
    "MOE512", "new-gap", Severity.WARNING,
    what="Calls of some token counts of a deployment find no tuned row, and did, or were not declared, in the base.",
    why="AITER looks up one bucket and no neighbour: such calls run its default kernels, and nobody is told.",
    fix="Tune the buckets, or list them under `left_out` with the reason.",
)  # fmt: skip


def new_gaps(tree: WorkingTree, base: Base, diff: RowDiff, declared: Declarations) -> Iterator[Finding]:
    """A finding a deployment. `declared` is what the base declared."""
    shapes = {_shape(row.key) for row in diff.removed}
    asked = [d for d in _own(tree.declarations) if _has_changed(d, base) or _shape(d.key) in shapes]
    names = {deployment.name for deployment in asked}
    were = [deployment for deployment in _own(declared) if deployment.name in names]
    known = {coverage.deployment.name: set(coverage.gaps) for coverage in _covered(were, base.families)}
    for coverage in _covered(asked, tree.families):
        name = coverage.deployment.name
        gaps = [bucket for bucket in coverage.gaps if bucket not in known.get(name, ())]
        if gaps:
            message = f"{name}: no row for {listed_tokens(gaps)} tokens, unlike in {base.name}"
            yield Finding(NEW_GAP, coverage.deployment.declared.place, message)


def _own(declared: Declarations) -> Iterator[Deployment]:
    """The deployments that AITER's lookup serves."""
    return (deployment for deployment in deployments(declared) if not deployment.is_portable)


def _covered(asked: list[Deployment], families: Mapping[str, Family]) -> list[Coverage]:
    return cover(asked, merge(families[OWN_CONFIGS].tuned.values())) if asked else []


def _has_changed(deployment: Deployment, base: Base) -> bool:
    shape = deployment.shape
    return bool({f"{SHAPES}/{shape.deployment}.yaml", f"{MODELS}/{shape.model}.yaml"} & base.changed)


def _shape(key: Key) -> tuple[str, int, UntunedRow]:
    """What a key's buckets share, whichever activation: a lookup does not compare it."""
    return key.gfx, key.cu_num, replace(key.shape, token=0, act_type="")
