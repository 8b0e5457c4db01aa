"""Collisions that block: in the tree, over AITER's family, and with each branch that it may be merged with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from moeshapes.branches import CHANGED_TWICE, find_merge_faults
from moeshapes.collision import COLLISION
from moeshapes.findings import Finding
from moeshapes.gate.base import Base
from moeshapes.gate.tree import WorkingTree
from moeshapes.keys import check_families, family_beneath
from moeshapes.linked_folder import LINKED_FOLDER


def key_faults(tree: WorkingTree, base: Base, configs: Path | None, against: Sequence[str]) -> Iterator[Finding]:
    """Every collision that a row of this tree is in, whoever was first. Raises GitError.

    What the base's branch gained meanwhile counts too: both may be free of collisions, and their merge is not.
    """
    beneath = family_beneath(tree.families, configs)
    found = check_families(tree.root, tree.families, beneath).findings
    yield from (finding for finding in found if finding.rule in (COLLISION, LINKED_FOLDER))
    here = base.trees.working(tree.families)
    for ref in dict.fromkeys([*([] if base.is_tip else [base.ref]), *against]):
        for finding in find_merge_faults(here, [base.trees.named(ref)], base.trees, beneath):
            of_the_other_alone = finding.place.file.startswith(f"{ref}:")
            if finding.rule is CHANGED_TWICE or (finding.rule is COLLISION and not of_the_other_alone):
                yield finding
