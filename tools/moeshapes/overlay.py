"""Overlays: the tuned tables of an AITER checkout with ours laid over them row by row, as an export leaves them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from moeshapes.family import Entry, Family, Keys, RowKey, entries_of, merge_order
from moeshapes.findings import Finding
from moeshapes.rule import Rule, Severity

REPLACED = Rule(
    "MOE205",
    "replaced-row",
    Severity.INFO,
    what="A tuned row of ours takes the place of another one in AITER's table of the same name.",
    why="Who serves the shape today gets other kernels; a sweep with one tuner has replaced faster rows of another.",
    fix="Nothing, if it is meant and measured against the row that it replaces; else remove it here.",
)


@dataclass(frozen=True)
class Overlay:
    """The merged rows, and how ours got among them: as `new` rows, `replaced` other ones, or were there `unchanged`."""

    entries: tuple[Entry, ...]
    new: int
    replaced: tuple[tuple[Entry, Entry], ...]
    unchanged: int

    @property
    def findings(self) -> Iterator[Finding]:
        """A finding at each row of ours that replaces another."""
        return (_replaced(ours, theirs) for ours, theirs in self.replaced)


class Identity:
    """What makes two rows of tables of the same name the same row: the key, an absent tag being an empty one."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._keys = Keys([column for column in columns if column != "_tag"])

    def of(self, entry: Entry) -> RowKey | None:
        """None where a cell of the key cannot be read."""
        key = self._keys.of(entry)
        return None if key is None else (*key, entry.cell("_tag"))


def lay_over(beneath: Family, ours: Iterable[Entry], columns: Sequence[str]) -> Overlay:
    """Lays rows of ours over a family of AITER's: same-named tables are merged by key, others are added.

    `columns` are those that the merge of both compares. Rows of AITER's that ours do not name stay; so do rows of both
    whose key cannot be read.
    """
    identity = Identity(columns)
    waiting: defaultdict[tuple[str, RowKey | None], list[Entry]] = defaultdict(list)
    for entry in ours:
        waiting[entry.file, identity.of(entry)].append(entry)
    merged: list[Entry] = []
    pairs: list[tuple[Entry, Entry]] = []
    for entry in entries_of(beneath, origins=None):
        key = identity.of(entry)
        successors = waiting.pop((entry.file, key), []) if key is not None else []
        pairs += [(successor, entry) for successor in successors]
        merged += successors or [entry]
    new = [entry for entries in waiting.values() for entry in entries]
    ordered = sorted([*merged, *new], key=lambda entry: merge_order(entry.file))
    changed = tuple((mine, other) for mine, other in pairs if not same_row(mine, other))
    return Overlay(tuple(ordered), len(new), changed, len(pairs) - len(changed))


def same_row(one: Entry, other: Entry) -> bool:
    """Whether two rows say the same, absent columns taken as AITER takes them."""
    if one.table.header == other.table.header and one.line.cells == other.line.cells:
        return True
    columns = {*one.table.header, *other.table.header}
    return all(_value(one, column) == _value(other, column) for column in columns)


def _value(entry: Entry, column: str) -> str:
    canonical = entry.canonical(column)
    return entry.cell(column) if canonical is None else canonical


def _replaced(ours: Entry, theirs: Entry) -> Finding:
    from moeshapes.comparable import differences_in_timing, same_launch  # reads kernel names: most runs do without

    change = f" ({(ours.us / theirs.us - 1) * 100:+.1f} %)" if 0 < theirs.us < float("inf") else ""
    message = f"replaces AITER's row {theirs}: {ours.us:g} µs{change}, "
    message += "the same kernels" if same_launch(ours, theirs) else ours.kernels
    caveats = list(differences_in_timing(ours, theirs))
    return Finding(REPLACED, ours.place, "; ".join([message, *caveats]))
