"""Row diffs: which tuned rows are new, changed, measured again or removed since a base, by key and not by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import chain, zip_longest
from pathlib import Path

from moeshapes.family import Family, Keys, entries_of, key_columns, read_families
from moeshapes.findings import Place
from moeshapes.row import UNTUNED_COLUMNS, Key, TunedRow
from moeshapes.table import Table, read_tuned_rows
from moeshapes.tree import Trees

_MEASURED = tuple(field.name for field in fields(TunedRow) if field.name not in ("key", "tag", "place"))


@dataclass(frozen=True)
class RowChange:
    """A row that stands under the same key and tag before and after, and does not say the same."""

    before: TunedRow
    after: TunedRow

    @property
    def same_times(self) -> bool:
        """Whether every time stayed: what runs now was not measured, if the launch changed."""
        return all(getattr(self.before, time) == getattr(self.after, time) for time in ("us1", "us2", "us"))


@dataclass(frozen=True)
class RowDiff:
    """What became of tuned rows since `base`, a commit. Each in the order of files and lines.

    `changed` launches something else; `retimed` has other times or errors of the same launch. `unchanged` counts rows
    that say the same, in whatever file and line they stand. Rows that cannot be read are in none of them. `merged`
    counts the rows of the merged tables now, `new_keys` the keys among them that the base's tables lack.
    """

    base: str
    new: tuple[TunedRow, ...]
    changed: tuple[RowChange, ...]
    retimed: tuple[RowChange, ...]
    removed: tuple[TunedRow, ...]
    unchanged: int
    merged: int
    new_keys: int

    @property
    def to_prove(self) -> tuple[TunedRow, ...]:
        """The rows whose launch is not the base's: evidence for the base's rows says nothing of them."""
        return tuple(sorted([*self.new, *(change.after for change in self.changed)], key=_order))


def rows_since(root: Path, ref: str, after: Mapping[str, Family] | None = None) -> RowDiff:
    """What became of the rows below `root`, a repository of shapes or an AITER checkout, since it left `ref`.

    The base is the commit that HEAD and `ref` grew from, so that what `ref` gained meanwhile is not taken for removed.
    `after` are the families below `root`, where they were read already. Raises GitError, also where they have no commit
    in common that is here.
    """
    base = Trees(root).base(ref)
    return diff_rows(base.commit, base.families, read_families(root) if after is None else after)


def diff_rows(base: str, before: Mapping[str, Family], after: Mapping[str, Family]) -> RowDiff:
    """Compares the families of two trees, folder by folder: a key stands for itself in each."""
    found = _Found()
    for folder in dict.fromkeys((*before, *after)):
        found.compare(before.get(folder, Family({})), after.get(folder, Family({})))
    changed, retimed = (tuple(sorted(pairs, key=_order_after)) for pairs in (found.changed, found.retimed))
    new, removed = (tuple(sorted(rows, key=_order)) for rows in (found.new, found.removed))
    return RowDiff(base, new, changed, retimed, removed, found.unchanged, found.merged, found.new_keys)


class _Found:
    """What a comparison has found so far."""

    def __init__(self) -> None:
        self.new: list[TunedRow] = []
        self.changed: list[RowChange] = []
        self.retimed: list[RowChange] = []
        self.removed: list[TunedRow] = []
        self.unchanged = self.merged = self.new_keys = 0

    def compare(self, before: Family, after: Family) -> None:
        tables = [*before.tuned.values(), *after.tuned.values()]
        keys = Keys(key_columns(tables, UNTUNED_COLUMNS))
        had = {keys.of(entry) for entry in entries_of(before)}
        has = [keys.of(entry) for entry in entries_of(after)]
        self.merged += len(has)
        self.new_keys += len({*has} - had - {None})
        same = {file for file, table in after.tuned.items() if _is_same(before.tuned.get(file), table)}
        self.unchanged += sum(line.sound for file in same for line in after.tuned[file].lines)
        old, new = (_rows_by_key(family, same) for family in (before, after))
        for key in dict.fromkeys(chain(old, new)):
            for one, other in _paired(old.get(key, ()), new.get(key, ())):
                self._take(one, other)

    def _take(self, before: TunedRow | None, after: TunedRow | None) -> None:
        if before is None or after is None:
            self.new += [after] if after else []
            self.removed += [before] if before else []
        elif before.launch() != after.launch():
            self.changed.append(RowChange(before, after))
        elif any(getattr(before, name) != getattr(after, name) for name in _MEASURED):
            self.retimed.append(RowChange(before, after))
        else:
            self.unchanged += 1


def _is_same(before: Table | None, after: Table) -> bool:
    return before is not None and (before.header_raw, before.lines) == (after.header_raw, after.lines)


def _rows_by_key(family: Family, but: Iterable[str]) -> Mapping[tuple[Key, str], list[TunedRow]]:
    """The rows of all tables but those named. There is more than one under a key where it collides."""
    skipped = set(but)
    rows: defaultdict[tuple[Key, str], list[TunedRow]] = defaultdict(list)
    for row in _rows(table for file, table in family.tuned.items() if file not in skipped):
        rows[row.key, row.tag].append(row)
    return rows


def _paired(before: Iterable[TunedRow], after: Iterable[TunedRow]) -> Iterator[tuple[TunedRow | None, TunedRow | None]]:
    """Rows of one key: those of the same launch together, so that removing a collision's loser changes no other."""
    left, unpaired = list(before), list[TunedRow]()
    for row in after:
        same = next((old for old in left if old.launch() == row.launch()), None)
        if same:
            left.remove(same)
            yield same, row
        else:
            unpaired.append(row)
    yield from zip_longest(left, unpaired)


def _rows(tables: Iterable[Table]) -> Iterator[TunedRow]:
    return (row for table in tables for row in read_tuned_rows(table))


def _order(row: TunedRow) -> Place:
    return row.place


def _order_after(change: RowChange) -> Place:
    return change.after.place
