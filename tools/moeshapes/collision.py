"""Collisions: tuned rows that AITER's merge, or its lookup, cannot tell apart (contract 1.3, 3.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from moeshapes.family import FALLBACK_TAG, GENERAL, NOT_LOOKED_AT, Entry, Keys, RowKey, sharing_a_key
from moeshapes.findings import Finding
from moeshapes.rule import Rule, Severity
from moeshapes.table import key_of

COLLISION = Rule(
    "MOE201",
    "collision",
    Severity.ERROR,
    what="Two tuned rows of a family have the same key.",
    why="AITER's merge keeps the row with the lowest us, rewrites the source files on disk and raises.",
    fix="Keep one of the rows; where both files need the shape, keep the row in one of them.",
)
ACTIVATION_IGNORED = Rule(
    "MOE203",
    "activation-ignored",
    Severity.WARNING,
    what="Two tuned rows differ in act_type, which AITER's lookup does not compare.",
    why="Every call of both activations gets the row that comes first in the merge, whose kernels may be of the other.",
    fix="Keep one of the rows, with kernels that take the activation when they are launched.",
)
TAG_IGNORED = Rule(
    "MOE204",
    "tag-ignored",
    Severity.WARNING,
    what="Two tuned rows differ in `_tag`, which AITER's merge compares and its lookup does not.",
    why="The merge keeps both, and every call gets the one that comes first, however slow it is.",
    fix="Keep one of the rows.",
)

MOST_SHOWN = 8
"""Other rows that a finding lists. Each has a finding of its own, and all in each would grow with their square."""


@dataclass(frozen=True)
class Scope:
    """Where collisions are looked for: after `merging` branches, except those that each of `except_in` has by itself.

    `fixable` says that all rows are this working tree's own, `portable` that they are the portable kernels': their
    lookup compares act_type too.
    """

    merging: str = ""
    except_in: frozenset[str] = frozenset()
    fixable: bool = False
    portable: bool = False

    @property
    def not_looked_at(self) -> tuple[str, ...]:
        """Columns of the key that lookups do not compare."""
        return tuple(column for column in NOT_LOOKED_AT if not (self.portable and column == "act_type"))

    def holds(self, rows: Iterable[Entry]) -> bool:
        """Whether the rows meet here and not in one of the trees already. What is AITER's lies beneath all trees."""
        origins = [row.origins for row in rows if row.origins is not None]
        if not origins:
            return not self.except_in
        return not frozenset.intersection(*origins) & self.except_in


def find_collisions(entries: Iterable[Entry], columns: Sequence[str], scope: Scope) -> Iterator[Finding]:
    """A finding at every tuned row whose key another row has, and at every one that another keeps from being hit.

    `entries` are one family in merged order, `columns` the key that its merge compares.
    """
    keys = Keys(columns)
    for rows in sharing_a_key(entries, [column for column in columns if column not in scope.not_looked_at]):
        by_key: defaultdict[RowKey, list[Entry]] = defaultdict(list)
        for row in rows:
            key = keys.of(row)
            if key is not None:
                by_key[key].append(row)
        for same in by_key.values():
            if len(same) > 1 and scope.holds(same):
                yield from _collision(same, columns, scope)
        loaded = {key: same[0] for key, same in by_key.items() if same[0].canonical("_tag") != FALLBACK_TAG}
        yield from _hidden(loaded, columns, scope)


def kept_by_aiter(same: Sequence[Entry]) -> Entry:
    """The row that AITER's merge keeps of those with one key; of equal times the one that it reads first."""
    return min(same, key=lambda row: row.us)


def _collision(same: Sequence[Entry], columns: Sequence[str], scope: Scope) -> Iterator[Finding]:
    kept = kept_by_aiter(same)
    for row in same:
        others = list(islice((other for other in same if other is not row), MOST_SHOWN))
        more = f" and {len(same) - 1 - len(others)} more rows" if len(same) - 1 > len(others) else ""
        served = same[0] if scope.portable else kept
        this = "this row" if row is served else f"the row at {served.place}"
        message = (
            f"{scope.merging}{key_of(row.table, row.line)}: {row.us:g} µs, {row.kernels}; the same key has "
            f"{', '.join(map(str, others))}{more}; {'lookups get' if scope.portable else 'AITER would keep'} {this}"
            f"{_spelling_note(row, others, columns)}"
        )
        yield Finding(COLLISION, row.place, message, _remedy(row, kept, others, scope))


def _spelling_note(row: Entry, others: Sequence[Entry], columns: Sequence[str]) -> str:
    """How the keys differ as text. AITER compares exactly, so it would miss the collision and keep both rows."""
    pairs = {
        f"`{row.cell(column)}` and `{other.cell(column)}`"
        for other in others
        for column in columns
        if column in row.table.index and column in other.table.index and row.cell(column) != other.cell(column)
    }
    return f" (spelled differently, {', '.join(sorted(pairs))}: an exact comparison misses it)" if pairs else ""


def _remedy(row: Entry, kept: Entry, others: Sequence[Entry], scope: Scope) -> str:
    """What to do about this row: remove it where it lost a fair comparison, else measure."""
    from moeshapes.comparable import why_not_comparable  # reads kernel names: a clean run does without

    rivals = others if row is kept else [kept]
    reason = next((reason for rival in rivals if (reason := why_not_comparable(row, rival))), "")
    if reason:
        refused = " (`keys --fix` leaves them alone)" if scope.fixable else ""
        return f"Their times do not say which to keep: {reason}. Measure both in one run, then remove one{refused}."
    automatically = ", or let `moeshapes keys --fix` do it" if scope.fixable else ""
    if row is kept:
        return f"Keep this row and remove the other{'s' if others[1:] else ''}{automatically}."
    return f"Remove this row{automatically}."


def _hidden(loaded: Mapping[RowKey, Entry], columns: Sequence[str], scope: Scope) -> Iterator[Finding]:
    """A finding at each row, of those that one lookup finds, that no call gets because another comes first."""
    if not loaded:
        return
    (served_key, served), *others = loaded.items()
    for key, row in others:
        if scope.holds((served, row)):
            differ = [column for column, one, other in zip(columns, key, served_key, strict=True) if one != other]
            message = f"{scope.merging}{key_of(row.table, row.line)}: {row.us:g} µs, {row.kernels}; "
            message += _what_lookups_get(served, row, differ, scope)
            yield Finding(ACTIVATION_IGNORED if "act_type" in differ else TAG_IGNORED, row.place, message)


def _what_lookups_get(served: Entry, row: Entry, differ: Sequence[str], scope: Scope) -> str:
    values = " and ".join(f"`{column}` ({_shown(row, column)}; {_shown(served, column)} there)" for column in differ)
    if scope.portable:
        return f"lookups do not see {values} and get {served}"
    if served.file in (row.file, GENERAL):
        return f"lookups do not see {values} and get {served}, which serves the calls of both"
    return f"lookups do not see {values} and get this row or {served}: whichever file AITER lists first serves both"


def _shown(row: Entry, column: str) -> str:
    if column not in row.table.index:
        return "absent"
    return (row.canonical(column) or "empty").removeprefix("ActivationType.")
