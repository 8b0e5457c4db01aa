"""Surplus: committed records that are evidence of no tuned row any more, and files that are no records at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from moeshapes.findings import Finding, Place, has_errors
from moeshapes.gate.attestation import Attestations
from moeshapes.gate.tree import WorkingTree, read_tree, record_files
from moeshapes.linked_folder import linked_folders
from moeshapes.record import RECORDS, SIGNATURE
from moeshapes.record_name import folder_name
from moeshapes.rule import Rule, Severity

SURPLUS_RECORD = Rule(
    "MOE521", "surplus-record", Severity.WARNING,
    what="No tuned row has the key, launch fields and use any more that a record is of.",
    why="The row was retuned or removed, or its use is declared otherwise: the record proves nothing.",
    fix="Run `moeshapes records prune`.",
)  # fmt: skip
STRAY_FILE = Rule(
    "MOE522", "stray-file", Severity.WARNING,
    what="A file among the records is neither a record by its name and folder, nor the signature of one.",
    why="Whoever put it there may believe that it counts.",
    fix="Remove it, or let `moeshapes verify` write what it was meant to be.",
)  # fmt: skip


@dataclass(frozen=True)
class Pruned:
    """The records that were removed, by paths below the root, among how many; and what kept others from being."""

    removed: tuple[str, ...]
    records: int
    findings: tuple[Finding, ...]


def record_findings(root: Path) -> list[Finding]:
    """What `check` says of the committed records, by their names alone: there may be thousands."""
    if not (root / RECORDS).exists() and not (root / RECORDS).is_symlink():
        return []
    tree = read_tree(root)
    surplus = surplus_records(tree) if tree.is_sound else []
    message = "no tuned row has its key, launch fields and use any more"
    found = [*linked_folders(root, RECORDS), *_strays(tree)]
    return [*found, *(Finding(SURPLUS_RECORD, Place(path), message) for path in surplus)]


def surplus_records(tree: WorkingTree) -> list[str]:
    """The paths of the records that no row of the tree claims, but those of tables with rows that cannot be read.

    The tree's declarations are sound.
    """
    claimed = {claim.file for claims in tree.claims.values() for claim in claims}
    tables = (table for family in tree.families.values() for table in family.tuned.values())
    unread = {folder_name(table.name) for table in tables if has_errors(table.findings)}
    paths = (path for name, paths in tree.records.items() if name not in claimed for path in paths)
    return sorted(path for path in paths if PurePosixPath(path).parent.name not in unread)


def prune(root: Path, dry: bool = False) -> Pruned:
    """Removes the surplus records below `root` and their signatures, or only says which with `dry`.

    Nothing is removed where declarations have errors, nor a file that is no record. Raises OSError.
    """
    tree = read_tree(root)
    records = sum(map(len, tree.records.values()))
    obstacles = [*linked_folders(root, RECORDS), *(finding for finding in tree.findings if has_errors([finding]))]
    if obstacles:
        return Pruned((), records, tuple(obstacles))
    attestations = Attestations(root)
    removed = [path for path in surplus_records(tree) if attestations.at(path)]
    faults = attestations.faults.values()
    kept = [replace(fault, message=f"not removed: {fault.message}", remedy="Remove it by hand.") for fault in faults]
    for path in removed if not dry else ():
        (root / path).unlink()
        (root / f"{path}{SIGNATURE}").unlink(missing_ok=True)
    return Pruned(tuple(removed), records, tuple(kept))


def _strays(tree: WorkingTree) -> Iterator[Finding]:
    known = {path for paths in tree.records.values() for path in paths}
    for path in record_files(tree.root):
        if path.removesuffix(SIGNATURE) not in known:
            yield Finding(STRAY_FILE, Place(path), "this is neither a record nor the signature of one")
        elif (tree.root / path).is_symlink():
            yield Finding(STRAY_FILE, Place(path), "a link is not read")
