"""The sections of a pull request's report as markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from markupsafe import Markup

from moeshapes.coverage import Coverage, Status
from moeshapes.coverage_view import notes_of
from moeshapes.report.figures import interval, microseconds, percent, recorded, with_interval
from moeshapes.report.links import Links
from moeshapes.report.markdown import Section, cell, code, link
from moeshapes.report.proof import Proof
from moeshapes.report.pull_request import PullRequest
from moeshapes.report.speed import BASELINE, REPLACED, Comparison, Pass
from moeshapes.row import TunedRow
from moeshapes.row_diff import RowChange
from moeshapes.statement import FAIL

_WAYS_SHOWN = 10
OPEN_ROWS = 40
"""Rows of the main table that stand in the open."""
Row = tuple[Markup, ...]
_NOT_KNOWN = Markup("–")
_SAME_BITS = {None: "not recorded", True: "yes", False: "no"}


def sections_of(request: PullRequest, links: Links) -> list[Section]:
    """The tables that have anything to say, in the order in which they are read."""
    rows = _Rows(request, links)
    filled = (replace(section, rows=tuple(make(rows))) for section, make in _SECTIONS)
    return [section for section in filled if section.rows]


class _Rows:
    """Makes the rows of each table."""

    def __init__(self, request: PullRequest, links: Links) -> None:
        self._request, self._links = request, links
        uses: dict[TunedRow, int] = {}
        for proof in (*request.proofs, *request.retimed):
            uses[proof.row] = uses.get(proof.row, 0) + 1
        self._uses = uses

    def _at(self, row: TunedRow) -> Markup:
        """A row's table and line, linked: tables have names of their own, so that folders need not be shown."""
        name = f"{row.place.file.rpartition('/')[2]}:{row.place.line}"
        return link(code(name), self._links.of(row.place))

    def main(self) -> Iterator[Row]:
        for proof in self._request.by_urgency:
            yield (
                self._shape(proof),
                link(cell(str(proof.row.key.shape.token)), self._links.of(proof.row.place)),
                *_times(proof),
                _bad_values(proof),
                _determinism(proof),
                cell(proof.device),
            )

    def _shape(self, proof: Proof) -> Markup:
        """With the use, where the row has several."""
        shape = cell(f"{proof.row.key.shape.dims} {proof.use.recipe}")
        return shape + Markup("<br>") + code(proof.use.id) if self._uses[proof.row] > 1 else shape

    def failures(self) -> Iterator[Row]:
        for proof in self._request.by_urgency:
            if proof.status == FAIL:
                yield from ((self._at(proof.row), code(proof.use.id), code(reason)) for reason in proof.reasons)

    def kernels(self) -> Iterator[Row]:
        for change in self._request.diff.changed:
            yield from self._kernels_of(change)

    def _kernels_of(self, change: RowChange) -> Iterator[Row]:
        before, after = change.before, change.after
        at = self._at(after)
        for stage, old, new in ((1, before.kernel1, after.kernel1), (2, before.kernel2, after.kernel2)):
            same = cell("the same") if old == new else code(new) or _NOT_KNOWN
            yield (at, cell(str(stage)), code(old) or _NOT_KNOWN, same)
        others = ((name, before.launch()[name], after.launch()[name]) for name in _OTHER_FIELDS)
        for name, old_value, new_value in others:
            if old_value != new_value:
                yield (at, cell(name), cell(str(old_value)), cell(str(new_value)))
        again = cell("not measured again: every time is the old one") if change.same_times else cell(recorded(after))
        yield (at, cell("recorded µs"), cell(recorded(before)), again)

    def removed(self) -> Iterator[Row]:
        for row in self._request.diff.removed:
            kernels = Markup("<br>").join(code(name) for name in (row.kernel1, row.kernel2) if name)
            yield (self._at_base(row), cell(str(row.key)), code(row.tag) or _NOT_KNOWN, kernels or _NOT_KNOWN)

    def _at_base(self, row: TunedRow) -> Markup:
        return code(f"{row.place.file.rpartition('/')[2]}:{row.place.line}")

    def retimed(self) -> Iterator[Row]:
        for change in self._request.diff.retimed:
            yield (self._at(change.after), cell(recorded(change.before)), cell(recorded(change.after)))

    def baselines(self) -> Iterator[Row]:
        for proof in self._request.by_urgency:
            if baseline := proof.baseline:
                equal, kernels = _compared_bits(proof, baseline)
                same, share = _SAME_BITS[baseline.get("deterministic")], f"{float(baseline['over_limit']):.3f}"
                yield (self._at(proof.row), code(proof.use.id), cell(equal), cell(same), cell(share), kernels)

    def passes(self) -> Iterator[Row]:
        for proof in self._request.by_urgency:
            speed = proof.speed
            for comparison in speed.comparisons if speed else ():
                yield from self._passes_of(proof, comparison.against, comparison.passes)
            if speed:
                yield from self._passes_of(proof, "itself: noise", speed.noise)

    def _passes_of(self, proof: Proof, against: str, passes: Sequence[Pass]) -> Iterator[Row]:
        for number, one in enumerate(passes, 1):
            dropped = f", {one.dropped} dropped" if one.dropped else ""
            yield (
                self._at(proof.row),
                cell(against),
                cell(str(number)),
                cell(one.verdict),
                cell(percent(one.change.centre)),
                cell(interval(one.change)),
                cell(f"{microseconds(one.other_us)} → {microseconds(one.us)}"),
                cell(f"{one.captures}{dropped}"),
                cell(f"{one.clock_mhz[0]:.0f}–{one.clock_mhz[1]:.0f} MHz"),
            )

    def uses(self) -> Iterator[Row]:
        for proof in self._request.by_urgency:
            share = f"{proof.over_limit:.3f}" if proof.record else ""
            status = proof.status if proof.declared else f"{proof.status}, no shape declares it"
            yield (
                self._at(proof.row),
                code(proof.use.id),
                cell(proof.use.recipe),
                cell(_padding(proof)),
                cell(proof.use.gate_mode),
                cell(status),
                cell(share) or _NOT_KNOWN,
            )

    def buckets(self) -> Iterator[Row]:
        for coverage in self._request.coverages:
            for note in notes_of(_without_rows(coverage)):
                buckets, _, why = note.partition(": ")
                yield (code(coverage.deployment.name), cell(buckets), code(why) or _NOT_KNOWN)


_SECTIONS: tuple[tuple[Section, Callable[[_Rows], Iterator[Row]]], ...] = (
    (
        Section(
            "Rows",
            "",
            ("shape", "tokens", "baseline µs", "tuned µs", "change ± interval", "NaN", "deterministic", "device"),
            importance=9,
            open=OPEN_ROWS,
        ),
        _Rows.main,
    ),
    (Section("Why rows fail", "", ("row", "use", "reason"), importance=8, open=OPEN_ROWS), _Rows.failures),
    (
        Section(
            "Kernels before and after",
            "Recorded times come from two runs of a tuner, each with its own data: they are shown, not compared.",
            ("row", "stage", "before", "after"),
            importance=7,
        ),
        _Rows.kernels,
    ),
    (Section("Rows removed", "", ("row at the base", "key", "tag", "kernels"), importance=6), _Rows.removed),
    (
        Section(
            "Against the baseline: bits and kernels",
            "It is what runs without the row: the backend's own choice, or a row of another activation or tier.",
            ("row", "use", "bitwise equal", "baseline deterministic", "its error / limit", "its kernels"),
            importance=4,
        ),
        _Rows.baselines,
    ),
    (
        Section(
            "Both passes of each comparison",
            "A pass is a process of its own. Below 0 the row is faster. Noise: the row against itself.",
            ("row", "against", "pass", "verdict", "change", "95 % interval", "µs, other → row", "captures", "clock"),
            importance=3,
        ),
        _Rows.passes,
    ),
    (
        Section(
            "Uses that each row is proven under",
            "",
            ("row", "use", "recipe", "padding", "gates", "status", "error / limit"),
            importance=2,
        ),
        _Rows.uses,
    ),
    (Section("Measured again, same launch", "", ("row", "before", "after"), importance=1), _Rows.retimed),
    (
        Section(
            "Buckets without a row",
            "Of the deployments that the changed rows serve.",
            ("deployment", "buckets", "why"),
            importance=5,
        ),
        _Rows.buckets,
    ),
)
_OTHER_FIELDS = ("block_m", "ksplit", "run_1stage", "xbf16", "flat")


def _without_rows(coverage: Coverage) -> Coverage:
    missing = (Status.GAP, Status.LEFT_OUT, Status.DISCARDED)
    return Coverage(coverage.deployment, tuple(each for each in coverage.cells if each.status in missing))


def _padding(proof: Proof) -> str:
    use = proof.use
    pads = [f"{name} {pad}" for name, pad in (("hidden", use.hidden_pad), ("inter", use.intermediate_pad)) if pad]
    return f"{', '.join(pads)} as {use.pads}" if pads else "none"


def _compared_bits(proof: Proof, baseline: Mapping[str, Any]) -> tuple[str, Markup]:
    """Whether the row gives what runs without it, and that one's kernels. Bits of an emulation are torch's own."""
    if proof.emulated:
        return "not known: no kernel ran", cell("none ran: its arithmetic was emulated")
    equal = "equal: the row changes nothing" if baseline["bitwise_equal"] else "no"
    return equal, Markup("<br>").join(code(name) for name in baseline["launched"])


def _bad_values(proof: Proof) -> Markup:
    return _NOT_KNOWN if proof.bad_values is None else cell(str(proof.bad_values))


def _determinism(proof: Proof) -> Markup:
    if proof.deterministic is None:
        return _NOT_KNOWN
    return cell("yes" if proof.deterministic else f"no, ±{proof.spread:.2g} of the limit")


def _times(proof: Proof) -> Row:
    """Baseline, tuned and change: of one run, or what the table says where nothing was timed."""
    if proof.speed is None:
        return (_NOT_KNOWN, cell(f"{recorded(proof.row)} recorded"), _NOT_KNOWN)
    found = [comparison for name in (BASELINE, REPLACED) if (comparison := proof.speed.against(name))]
    first = found[0]
    changes = (_change(comparison, len(found) > 1) for comparison in found)
    return (cell(microseconds(first.other_us)), cell(microseconds(first.us)), Markup("<br>").join(changes))


def _change(comparison: Comparison, said: bool) -> Markup:
    against = f" than the {comparison.against}" if said else ""
    return cell(f"{with_interval(comparison.change)} {comparison.verdict}{against}")


def measured(request: PullRequest) -> Iterator[Markup]:
    """How the figures came about, a way a line, with how many records say so: of many ways only the first."""
    ways: dict[tuple[str, ...], list[Proof]] = {}
    for proof in request.by_urgency:
        if proof.record:
            ways.setdefault(tuple(_facts(proof)), []).append(proof)
    for facts, proofs in islice(ways.items(), _WAYS_SHOWN):
        said = [*facts, *_reuse(proofs)]
        yield cell(f"{_records(len(proofs))}: ") + Markup("; ").join(map(code, said))
    rest = list(ways.values())[_WAYS_SHOWN:]
    if rest:
        yield cell(f"{_records(sum(map(len, rest)))} that came about otherwise, in {len(rest)} more ways")


def _records(count: int) -> str:
    return f"{count} {'record' if count == 1 else 'records'}"


def _reuse(proofs: Sequence[Proof]) -> Iterator[str]:
    """It differs with the size of a layer's weights and with how many a call hits."""
    sizes = sorted({proof.speed.reuse_bytes >> 20 for proof in proofs if proof.speed})
    if sizes:
        yield f"no weights read again within {' to '.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))} MiB"


def _facts(proof: Proof) -> Iterator[str]:
    record = proof.record or {}
    device = record["device"]
    yield f"{proof.device}, driver {device['driver']}" if device["kind"] == "gpu" else proof.device
    yield ", ".join(f"{name} {version}" for name, version in sorted(record["versions"].items()))
    yield f"numerics protocol {record['numerics']['protocol']}, seed {record['seed']}"
    weights = record["numerics"].get("weights")
    yield f"weights of {weights['layer']} of checkpoint {weights['checkpoint']}" if weights else "weights drawn"
    if proof.speed:
        yield f"timing protocol {proof.speed.protocol}, {proof.speed.calls} calls a graph"
