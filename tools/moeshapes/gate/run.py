"""The gate: all that blocks a pull request, from the working tree, its records and the commit that it grew from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path

from moeshapes.findings import Finding, Place, has_errors, ordered
from moeshapes.gate.attestation import Attestations
from moeshapes.gate.base import Base
from moeshapes.gate.evidence import UNPROVEN, Evidence
from moeshapes.gate.gaps import new_gaps
from moeshapes.gate.keys import key_faults
from moeshapes.gate.lint import errors_of_changed_rows, errors_of_declarations, errors_of_text
from moeshapes.gate.policy import POLICY, Policy, read_policy
from moeshapes.gate.signers import allowed_signers
from moeshapes.gate.tree import WorkingTree, read_tree
from moeshapes.gate.verdict import Bench
from moeshapes.linked_folder import linked_folders
from moeshapes.record import RECORDS
from moeshapes.row_diff import RowDiff, diff_rows
from moeshapes.rule import Rule, Severity
from moeshapes.rules.declared import UNDECLARED
from moeshapes.waiver import read_waivers, waive

POLICY_CHANGED = Rule(
    "MOE515", "policy-changed", Severity.INFO,
    what="policy.yaml is not as in the base.",
    why="A change is judged by the policy of its base: none loosens its own gate.",
    fix="Nothing: the policy holds from the merge on. A change that needs it comes after.",
)  # fmt: skip


@dataclass(frozen=True)
class GateResult:
    """What was found, and what became of the rows since `base`.

    `proven` counts the new and changed rows that their records prove, `unproven` the others that lack one, `unread` the
    lines of tables that cannot be read, and so cannot be told to have one.
    """

    findings: tuple[Finding, ...]
    base: str
    diff: RowDiff
    proven: int
    unproven: int
    unread: int
    waived: int


def gate(
    root: Path,
    ref: str,
    configs: Path | None = None,
    against: Sequence[str] = (),
    signers: Path | None = None,
    today: date | None = None,
) -> GateResult:
    """Judges what the working tree below `root` changes since it left `ref`.

    With `configs`, keys are compared over the AITER family there too; `against` names other branches that may be merged
    first. With `signers`, records count that one of the allowed signers in that file has signed. Raises GitError,
    OSError.
    """
    today = today or datetime.now(timezone.utc).date()
    base, tree = Base(root, ref), read_tree(root)
    diff = diff_rows(base.commit, base.families, tree.families)
    policy, faults = _policy(root, base)
    allowed, unknown = allowed_signers(signers, root, base) if signers else (None, [])
    evidence = Evidence(tree, base, diff, Attestations(root, allowed), Bench(policy, today, base.ref))
    of_rows, others = _judged(tree, base, diff, evidence)
    waivers, bad_waivers = read_waivers(root, today)
    waived = waive(of_rows, tree.rows, waivers)
    undeclared = [finding for finding in tree.findings if has_errors([finding])]
    collisions = key_faults(tree, base, configs, against)
    of_files = (*linked_folders(root, RECORDS), *undeclared, *faults, *unknown, *bad_waivers, *evidence.record_faults())
    findings = ordered((*of_files, *collisions, *others, *_one_a_cause(waived.findings)))
    counts = (len(evidence.proven), len(evidence.unproven), tree.unread, waived.count)
    return GateResult(tuple(findings), base.name, diff, *counts)


def _policy(root: Path, base: Base) -> tuple[Policy, list[Finding]]:
    """The base's policy. What is wrong with this tree's own is found all the same."""
    _, own_faults = read_policy(root)
    policy, faults = base.policy()
    if POLICY in base.changed:
        faults.append(Finding(POLICY_CHANGED, Place(POLICY), f"judged by the policy of {base.name}"))
    return policy, [*own_faults, *faults]


def _judged(tree: WorkingTree, base: Base, diff: RowDiff, evidence: Evidence) -> tuple[list[Finding], list[Finding]]:
    """What is found about rows, which waivers may cover, and about declarations that changed or rows that are gone."""
    of_rows = [*evidence.findings(), *errors_of_changed_rows(tree, diff)]
    of_rows += errors_of_text(tree.families, base.families)
    if base.declares_the_same:
        return of_rows, list(new_gaps(tree, base, diff, tree.declarations)) if diff.removed else []
    declared, faults = base.declarations
    of_rows += errors_of_declarations(tree, diff, declared, sound=not faults)
    return of_rows, [*faults, *evidence.changed_uses(), *new_gaps(tree, base, diff, declared)]


def _one_a_cause(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Without the row's missing record where no shape declares the row: declaring it comes first."""
    undeclared = {finding.place for finding in findings if finding.rule is UNDECLARED}
    return (finding for finding in findings if finding.rule is not UNPROVEN or finding.place not in undeclared)
