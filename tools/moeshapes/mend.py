"""Mending: removing the losers of collisions from tuned tables, where the recorded times can decide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from moeshapes.collision import kept_by_aiter
from moeshapes.comparable import why_not_comparable
from moeshapes.family import FOLDERS, OF_MODELS, Entry, Family, entries_of, key_columns, read_family, sharing_a_key
from moeshapes.files import write_together
from moeshapes.linked_folder import linked_folders
from moeshapes.root import name_from


@dataclass(frozen=True)
class Removal:
    """A row that lost its key to another of the same tree."""

    lost: Entry
    kept: Entry

    @property
    def why(self) -> str:
        """Why that one is kept: it takes less time or, where both are the same row, it comes first in the merge."""
        if self.lost.us > self.kept.us:
            return "its time is the lowest"
        where = "its table" if self.lost.file != self.kept.file else "it"
        return f"launch and time are the same, and {where} comes first in the merge"


def remove_losers(root: Path) -> list[Removal]:
    """Removes each row that collides with one of less time, if their times compare; rewrites the tables that lose rows.

    Times of different tables never do. But two rows of one launch and one time say the same, whichever tables they
    stand in: the one that comes first in the merge is kept.

    Everything else of a table stays as it is, byte for byte, and so do the tables behind a link. Raises OSError.
    """
    removals: list[Removal] = []
    for folder in FOLDERS:
        if any(linked_folders(root, f"{folder}/{OF_MODELS}")):
            continue
        family = read_family(root / folder, folder, partial(name_from, root))
        lost = list(_losers(family))
        _rewrite(root / folder, [removal.lost for removal in lost])
        removals += lost
    return removals


def _losers(family: Family) -> Iterator[Removal]:
    columns = key_columns(family.tuned.values(), family.shape_columns)
    for same in sharing_a_key(entries_of(family), columns):
        kept = kept_by_aiter(same)
        yield from (Removal(row, kept) for row in same if row is not kept and not why_not_comparable(row, kept))


def _rewrite(folder: Path, rows: Sequence[Entry]) -> None:
    by_file: defaultdict[str, list[Entry]] = defaultdict(list)
    for row in rows:
        by_file[row.file].append(row)
    contents = {}
    for file, lost in by_file.items():
        table, numbers = lost[0].table, {row.line.number for row in lost}
        rest = tuple(line for line in table.lines if line.number not in numbers)
        contents[folder / file] = replace(table, lines=rest).render()
    write_together(contents)
