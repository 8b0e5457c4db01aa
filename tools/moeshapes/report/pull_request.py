"""A pull request's report: which keys it adds, what proves each row, how fast it is, what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from moeshapes.coverage import Coverage
from moeshapes.deployment import Deployment
from moeshapes.report.proof import NO_RECORD, Proof
from moeshapes.row import Key, TunedRow
from moeshapes.row_diff import RowDiff
from moeshapes.statement import EMULATED, FAIL, PROVEN

_VERDICTS = ("faster", "same", "slower", "unresolved")


@dataclass(frozen=True)
class PullRequest:
    """What changed since a base and what is known of it.

    `proofs` are of the rows whose launch is new, `retimed` of those that were measured again; `coverages` are of the
    deployments that any changed row serves. `head` is this tree's commit, `edited` whether it has more than that.
    """

    diff: RowDiff
    proofs: tuple[Proof, ...]
    retimed: tuple[Proof, ...]
    coverages: tuple[Coverage, ...]
    unread: tuple[tuple[str, str], ...]
    head: str
    edited: bool

    @cached_property
    def by_urgency(self) -> list[Proof]:
        """All proofs, what a reviewer must look at first, then by shape and bucket."""
        return sorted([*self.proofs, *self.retimed], key=lambda proof: (_urgency(proof), _by_shape(proof)))

    @property
    def facts(self) -> Iterator[str]:
        """The summary, fact by fact; what did not happen is not said."""
        diff = self.diff
        happened = (("new", diff.new), ("changed", diff.changed), ("measured again", diff.retimed))
        parts = [_counted(len(rows), word) for word, rows in happened if rows]
        parts += [_counted(len(diff.removed), "removed") + self._tags_removed] if diff.removed else []
        yield ", ".join(parts) or "No tuned row is new, changed or removed"
        yield f"{_counted(diff.merged, 'in the merged tables')}, {diff.new_keys} new unique {_keys(diff.new_keys)}"
        yield from self._facts_of_proofs()

    @property
    def _tags_removed(self) -> str:
        """` (48 tagged flydsl_fallback)`: a tuner that rewrites a table drops rows whose tags it does not know."""
        tags = Counter(row.tag for row in self.diff.removed if row.tag)
        return f" ({', '.join(f'{number} tagged {tag}' for tag, number in sorted(tags.items()))})" if tags else ""

    def _facts_of_proofs(self) -> Iterator[str]:
        rows = _statuses(self.proofs)
        if rows:
            counts = Counter(rows.values())
            yield f"of {len(rows)} to prove {', '.join(f'{n} {status}' for status, n in counts.most_common())}"
        verdicts = Counter(proof.verdict for proof in self.proofs if proof.verdict)
        if verdicts:
            yield ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in _VERDICTS if verdicts[verdict])
        judged = [proof for proof in self.by_urgency if proof.record]
        if judged:
            yield f"{sum(bool(proof.bad_values) for proof in judged)} with NaN"
            yield f"{sum(not proof.deterministic for proof in judged)} not deterministic"

    @property
    def tables(self) -> list[str]:
        """The tables whose rows are to be proven, for the command that does."""
        return sorted({row.place.file for row in self.diff.to_prove})


def serving(known: Iterable[Deployment], rows: Iterable[TunedRow]) -> list[Deployment]:
    """The deployments whose shape any of the rows has, for the same GPU and for kernels of the same backend."""
    wanted = {(shape_of(row.key), row.is_portable) for row in rows}
    return [each for each in known if (shape_of(each.key), each.is_portable) in wanted]


def shape_of(key: Key) -> tuple[object, ...]:
    """A key without its bucket: what rows of one shape share."""
    _, *cells = key.shape.cells()
    return (key.gfx, key.cu_num, *cells)


def _statuses(proofs: Iterable[Proof]) -> dict[tuple[str, int], str]:
    """What each row is by its place: the worst over its uses, since it is proven when it is under each."""
    found: dict[tuple[str, int], str] = {}
    for proof in sorted(proofs, key=lambda proof: _STATUSES.index(proof.status)):
        found.setdefault((proof.row.place.file, proof.row.place.line), proof.status)
    return found


_STATUSES = (FAIL, NO_RECORD, EMULATED, PROVEN)


def _urgency(proof: Proof) -> int:
    urgent = (
        proof.status == FAIL,
        proof.verdict == "slower",
        bool(proof.record) and not proof.deterministic,
        proof.verdict == "unresolved",
        proof.status == NO_RECORD,
        proof.status == EMULATED,
        True,
    )
    return urgent.index(True)


def _by_shape(proof: Proof) -> tuple[object, ...]:
    return (*shape_of(proof.row.key), proof.row.key.shape.token, proof.use.id)


def _counted(number: int, word: str) -> str:
    return f"{number} {'row' if number == 1 else 'rows'} {word}"


def _keys(number: int) -> str:
    return "key" if number == 1 else "keys"
