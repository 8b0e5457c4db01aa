"""Branches: what the tuned tables will be once this tree and others are merged, and which rows collide only then.

Rows are merged one by one: what one side added, changed or removed since the common ancestor is so in the merge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from moeshapes.collision import Scope, find_collisions
from moeshapes.family import (
    HERE,
    TRITON,
    Entry,
    Family,
    RowKey,
    entries_of,
    in_tree,
    key_columns,
    merge_order,
    uncompared,
)
from moeshapes.findings import Finding
from moeshapes.overlay import Identity, lay_over, same_row
from moeshapes.rule import Rule, Severity
from moeshapes.table import key_of
from moeshapes.tree import Tree, Trees

CHANGED_TWICE = Rule(
    "MOE206",
    "changed-twice",
    Severity.WARNING,
    what="Two branches changed one row differently.",
    why="Whoever merges them has to choose, most likely by the text of a conflict and not by a measurement.",
    fix="Agree on the row before either branch is merged: measure both versions in one run.",
)

_At = tuple[str, RowKey]
"""A file, and what makes rows of it the same one."""
_Rows = Mapping[_At, Sequence[Entry]]
"""There is more than one row at a place where a file has a key twice."""


def find_merge_faults(
    here: Tree, others: Sequence[Tree], trees: Trees, beneath: Mapping[str, Family]
) -> Iterator[Finding]:
    """What goes wrong only when each of `others` is merged into the working tree, or two of them with each other.

    `beneath` are families of AITER's, by the folder of ours that is laid over each. Raises GitError.
    """
    for other in others:
        yield from _new_obstacles(here, other)
    for one, other in combinations((here, *others), 2):
        base = trees.ancestor(one, other)
        for folder, family in here.families.items():
            pair = _Pair(one, other, folder, family, beneath.get(folder))
            entries, conflicts = pair.merge(base.get(folder, Family({})))
            yield from find_collisions(pair.laid_over(entries), pair.columns, pair.scope)
            yield from conflicts


def _new_obstacles(here: Tree, other: Tree) -> Iterator[Finding]:
    """What keeps rows of a branch from being compared, in tables that are not as they are here."""
    for folder, family in other.families.items():
        for file, table in family.tuned.items():
            known = here.families[folder].tables.get(file)
            if known is None or known.render() != table.render():
                yield from (replace(each, place=in_tree(other.name, each.place)) for each in uncompared(table))


class _Pair:
    """One family in two trees that are to be merged."""

    def __init__(self, one: Tree, other: Tree, folder: str, here: Family, beneath: Family | None) -> None:
        self._one, self._other, self._beneath = one.name, other.name, beneath
        families = [one.families[folder], other.families[folder], *([beneath] if beneath else [])]
        tables = [table for family in families for table in family.tuned.values()]
        self.columns = key_columns(tables, (beneath or here).shape_columns)
        self._identity = Identity(self.columns)
        self._here, self._mine, self._theirs = (self._rows(family) for family in (here, *families[:2]))
        # What a branch has by itself was found when it was merged into the working tree.
        except_in = frozenset({HERE} if one.name == HERE else {one.name, other.name})
        self.scope = Scope(self._merged, except_in, portable=folder == TRITON)

    @property
    def _merged(self) -> str:
        names = [f"`{name}`" for name in (self._one, self._other) if name != HERE]
        return f"with {' and '.join(names)} merged, "

    def _rows(self, family: Family) -> _Rows:
        rows: defaultdict[_At, list[Entry]] = defaultdict(list)
        for entry in entries_of(family):
            key = self._identity.of(entry)
            if key is not None:
                rows[entry.file, key].append(entry)
        return rows

    def laid_over(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        return lay_over(self._beneath, entries, self.columns).entries if self._beneath else entries

    def merge(self, ancestor: Family) -> tuple[list[Entry], list[Finding]]:
        """The rows of both trees merged, each with the trees that have it; and a finding where both changed a row."""
        base = self._rows(ancestor)
        merged: list[Entry] = []
        conflicts: list[Finding] = []
        for at in sorted({**self._mine, **self._theirs}, key=lambda at: merge_order(at[0])):
            before, mine, theirs = (rows.get(at, ()) for rows in (base, self._mine, self._theirs))
            changed = not _same(mine, before), not _same(theirs, before)
            if _same(mine, theirs):
                merged += self._from(at, mine, self._one, self._other)
                continue
            if all(changed) and before:
                conflicts.append(self._conflict(at, mine, theirs))
                theirs = () if mine else theirs
            merged += self._from(at, mine, self._one) if changed[0] else ()
            merged += self._from(at, theirs, self._other) if changed[1] else ()
        return merged, conflicts

    def _from(self, at: _At, rows: Sequence[Entry], *trees: str) -> list[Entry]:
        """The rows as those trees have them, shown in the working tree where it has them too."""
        here = self._here.get(at, ())
        if _same(rows, here):
            return [replace(row, origins=frozenset(trees)) for row in here]
        return [replace(row, tree=trees[0], origins=frozenset(trees)) for row in rows]

    def _conflict(self, at: _At, mine: Sequence[Entry], theirs: Sequence[Entry]) -> Finding:
        versions = [(name, self._from(at, rows, name)) for name, rows in ((self._one, mine), (self._other, theirs))]
        told = [str(rows[0]) if rows else f"removed in {name or 'this tree'}" for name, rows in versions]
        row = next(rows[0] for _, rows in versions if rows)
        message = f"{self._merged}{key_of(row.table, row.line)}: both sides changed the row: {'; '.join(told)}"
        return Finding(CHANGED_TWICE, row.place, message)


def _same(one: Sequence[Entry], other: Sequence[Entry]) -> bool:
    return len(one) == len(other) and all(map(same_row, one, other))
