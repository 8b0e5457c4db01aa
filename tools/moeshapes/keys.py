"""Keys: that no two rows of a family have the same one: here, over an AITER checkout, with other branches merged."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from moeshapes.collision import MOST_SHOWN, Scope, find_collisions
from moeshapes.family import (
    AITER_CONFIGS,
    FOLDERS,
    OF_MODELS,
    OWN_CONFIGS,
    TRITON,
    Family,
    entries_of,
    key_columns,
    key_reader,
    read_families,
    read_family,
    uncompared,
)
from moeshapes.findings import Finding, Place
from moeshapes.linked_folder import linked_folders
from moeshapes.overlay import Overlay, lay_over
from moeshapes.rule import Rule, Severity
from moeshapes.table import Kind, Table

REPEATED_SHAPE = Rule(
    "MOE202",
    "repeated-shape",
    Severity.ERROR,
    what="An untuned table has the same row twice.",
    why="The tuner would measure the shape once and whoever reads the table would count it twice.",
    fix="Remove one of the rows.",
)


@dataclass(frozen=True)
class KeysResult:
    """What was found among how many tuned rows of how many tuned tables; the overlay, where AITER's lie beneath."""

    findings: tuple[Finding, ...]
    rows: int
    tables: int
    overlay: Overlay | None = None


def check_keys(root: Path, configs: Path | None = None, against: Sequence[str] = ()) -> KeysResult:
    """Checks every family of a repository of shapes, or of an AITER checkout, that `root` is the top folder of.

    With `configs`, an aiter/configs, our family is laid over the one there. With `against`, names of branches or
    commits, each is merged with the working tree and with each other. Nothing is written. Raises GitError.
    """
    families = read_families(root)
    beneath = family_beneath(families, configs)
    result = check_families(root, families, beneath)
    if not against:
        return result
    return replace(result, findings=(*result.findings, *_merge_faults(root, families, against, beneath)))


def family_beneath(families: Mapping[str, Family], configs: Path | None) -> Mapping[str, Family]:
    """AITER's family that is in `configs`, by the folder of ours that is laid over it; none without `configs`."""
    ours = AITER_CONFIGS if families[AITER_CONFIGS].tables else OWN_CONFIGS
    return {ours: read_family(configs, ours, os.path.relpath)} if configs else {}


def check_families(root: Path, families: Mapping[str, Family], beneath: Mapping[str, Family]) -> KeysResult:
    """Checks families that were read from below `root`, those of `beneath` with ours laid over them."""
    findings = [finding for folder in FOLDERS for finding in linked_folders(root, f"{folder}/{OF_MODELS}")]
    findings += [finding for family in families.values() for finding in _obstacles(family)]
    overlay = None
    for folder, family in families.items():
        if folder in beneath:
            overlay, found = _check_over(beneath[folder], family)
            findings += found
        else:
            columns = key_columns(family.tuned.values(), family.shape_columns)
            findings += find_collisions(entries_of(family), columns, Scope(fixable=True, portable=folder == TRITON))
    tuned = [table for family in families.values() for table in family.tuned.values()]
    rows = sum(line.cells is not None for table in tuned for line in table.lines)
    return KeysResult(tuple(findings), rows, len(tuned), overlay)


def _check_over(beneath: Family, ours: Family) -> tuple[Overlay, list[Finding]]:
    tables = [*beneath.tuned.values(), *ours.tuned.values()]
    columns = key_columns(tables, beneath.shape_columns)
    overlay = lay_over(beneath, entries_of(ours), columns)
    obstacles = [finding for table in beneath.tuned.values() for finding in uncompared(table)]
    return overlay, [*obstacles, *find_collisions(overlay.entries, columns, Scope()), *overlay.findings]


def _merge_faults(
    root: Path, families: Mapping[str, Family], against: Sequence[str], beneath: Mapping[str, Family]
) -> Iterator[Finding]:
    from moeshapes.branches import find_merge_faults  # starts processes: most runs do without
    from moeshapes.tree import Trees

    trees = Trees(root)
    others = [trees.named(ref) for ref in dict.fromkeys(against)]
    return find_merge_faults(trees.working(families), others, trees, beneath)


def _obstacles(family: Family) -> Iterator[Finding]:
    """What is wrong with single tables of a family: what keeps rows from being compared, untuned rows that repeat."""
    for table in family.tables.values():
        yield from uncompared(table)
        if table.kind is Kind.UNTUNED:
            yield from _repeated_shapes(table)


def _repeated_shapes(table: Table) -> Iterator[Finding]:
    places: defaultdict[object, list[Place]] = defaultdict(list)
    read = key_reader(table, table.header)
    for line in table.lines:
        key = read(line)
        if key is not None:
            places[key].append(table.place(line))
    for same in places.values():
        for place in same if len(same) > 1 else ():
            others = list(islice((other for other in same if other != place), MOST_SHOWN))
            more = f" and {len(same) - 1 - len(others)} more" if len(same) - 1 > len(others) else ""
            yield Finding(REPEATED_SHAPE, place, f"the same row as {', '.join(map(str, others))}{more}")
