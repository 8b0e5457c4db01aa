"""Choices: the candidate of each key that is kept, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from moeshapes.adopt import FULL_HEADER
from moeshapes.cell import DEFAULT_OF_ABSENT_COLUMN
from moeshapes.findings import Finding, Place
from moeshapes.row import UNTUNED_COLUMNS, Key, TunedRow
from moeshapes.select.faults import NONE_JUDGED, NONE_KEPT, ONLY_EMULATED
from moeshapes.select.pairing import Offer
from moeshapes.select.trial import Tried
from moeshapes.statement import FAIL, PROVEN
from moeshapes.table import Table, parse_table
from moeshapes.verify.evidence import PASSED


@dataclass(frozen=True)
class Choice:
    """What became of a key: the candidate that is kept, if any, and all that were tried, fastest first."""

    key: Key
    kept: Tried | None
    tried: tuple[Tried, ...]
    refused: Mapping[str, int]

    @property
    def may_be_written(self) -> bool:
        return self.kept is not None and self.kept.status == PROVEN


def choose(offered: Iterable[Offer], tried: Mapping[Key, Sequence[Tried]]) -> list[Choice]:
    """Of each key the fastest candidate that nothing speaks against: by what was timed here, else by the tuner."""
    choices = []
    for offer in offered:
        ranked = tuple(sorted(tried.get(offer.key, ()), key=_slowness))
        kept = next((each for each in ranked if not each.why_lost), None)
        choices.append(Choice(offer.key, kept, ranked, offer.refused))
    return choices


def _slowness(tried: Tried) -> tuple[bool, float, float]:
    ratio = tried.ratio
    return ratio is None, ratio or 0.0, tried.candidate.row.us


def findings_of(choices: Iterable[Choice], allow_emulated: bool) -> Iterator[Finding]:
    """Of the keys for which nothing is written."""
    for choice in choices:
        where, name = _place(choice), str(choice.key)
        if choice.kept is None:
            known = not choice.tried or any(each.status in (*PASSED, FAIL) for each in choice.tried)
            yield Finding(NONE_KEPT if known else NONE_JUDGED, where, f"{name}: {_count(choice)}")
        elif not choice.may_be_written and not allow_emulated:
            kept = choice.kept.candidate
            yield Finding(ONLY_EMULATED, kept.row.place, f"{name}: what {kept.source} times passed in emulation alone")


def _place(choice: Choice) -> Place:
    return choice.tried[0].candidate.row.place if choice.tried else Place("profile")


def _count(choice: Choice) -> str:
    if choice.tried:
        return f"none of {len(choice.tried)} candidates is kept"
    return "; ".join(f"{count} refused: {reason}" for reason, count in sorted(choice.refused.items()))


def account(choices: Iterable[Choice]) -> Iterator[str]:
    """Lines for people: of each key what is kept, and what was faster or tried beside it, with the reason."""
    for choice in choices:
        yield str(choice.key)
        for tried in choice.tried:
            row = tried.candidate.row
            kernels = " + ".join(name for name in (row.kernel1, row.kernel2) if name)
            yield f"  {_fate(choice, tried):<8}{row.us:g} µs{_measured(tried)}, block_m {row.block_m}, {kernels}"
            yield f"          {tried.candidate.source}: {tried.why_lost or _standing(tried)}"
        for reason, count in sorted(choice.refused.items()):
            yield f"  not tried: {count} × {reason}"


def _fate(choice: Choice, tried: Tried) -> str:
    return "kept" if tried is choice.kept else "lost" if tried.why_lost else "behind"


def _measured(tried: Tried) -> str:
    return "" if tried.ratio is None else f", × {tried.ratio:.3f} of what runs without it"


def _standing(tried: Tried) -> str:
    uses = ", ".join(each.subject.use.id for each in tried.verified)
    return f"{tried.status} under {uses}"


def source_table(rows: Sequence[TunedRow], name: str) -> Table:
    """The rows as a tuned table, each at the line where the profile has its first kernel."""
    lines = [",".join(_cells(row)) for row in rows]
    table = parse_table("\n".join([",".join(FULL_HEADER), *lines, ""]).encode(), "select_tuned_fmoe.csv")
    placed = (replace(line, number=row.place.line) for line, row in zip(table.lines, rows, strict=True))
    return replace(table, name=name, lines=tuple(placed))


def _cells(row: TunedRow) -> Iterator[str]:
    known = {
        **dict(zip(UNTUNED_COLUMNS, row.key.shape.cells(), strict=True)),
        **{name: str(value) for name, value in row.launch().items()},
        **{name: str(getattr(row, name)) for name in ("us1", "err1", "us2", "err2", "us", "tflops", "bw")},
        "gfx": row.key.gfx,
        "cu_num": str(row.key.cu_num),
    }
    return (known.get(column, DEFAULT_OF_ABSENT_COLUMN.get(column, "")) for column in FULL_HEADER)
