"""Rules about the buckets of one shape, seen together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from moeshapes.dispatch import BUCKETS
from moeshapes.findings import Finding
from moeshapes.kernel_name import parse
from moeshapes.row import TunedRow
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import FALLBACK_TAG, Tables, check_tables

TIME_FALLS = Rule(
    "MOE157", "time-falls", Severity.WARNING,
    what="A bucket is faster than a smaller one of the same table.",
    why="More tokens are more work: one of the two was measured otherwise, or the smaller has a bad kernel.",
    fix="Measure both in one run; where the larger one's kernel is as good for the smaller, take it there too.",
)  # fmt: skip
BUCKET_GAP = Rule(
    "MOE173", "bucket-gap", Severity.INFO,
    what="Buckets between two tuned ones have no row.",
    why="AITER looks up one bucket and no neighbour: these calls run the default path.",
    fix="Tune them, or record in the shape file why they are left out.",
)  # fmt: skip
LONE_BUCKET = Rule(
    "MOE174", "lone-bucket", Severity.INFO,
    what="One bucket has another kind of kernel than both its neighbours.",
    why="Wrong results at a single token count were traced to such a bucket; its neighbours' tests do not cover it.",
    fix="Verify that bucket by itself, at its smallest and largest token count.",
)  # fmt: skip
NO_PRIMARY = Rule(
    "MOE175", "fallback-without-primary", Severity.WARNING,
    what="A row tagged flydsl_fallback has no untagged row of its key.",
    why="AITER drops tagged rows when it loads a table, so the key has no row at all.",
    fix="Add the primary row, or remove the tag.",
)  # fmt: skip

_NOISE = 0.05


@check_tables
def falling_times(tables: Tables) -> Iterator[Finding]:
    for series in tables.series.values():
        for smaller, larger in pairwise(series):
            grows = larger.key.shape.token > smaller.key.shape.token and larger.place.file == smaller.place.file
            if grows and larger.us < smaller.us * (1 - _NOISE):
                message = (
                    f"{larger.us:g} µs, but {smaller.key.shape.token} tokens take {smaller.us:g} µs at {smaller.place}"
                )
                yield Finding(TIME_FALLS, larger.place, message)


@check_tables
def gaps(tables: Tables) -> Iterator[Finding]:
    """Buckets that a shape leaves out with a reason are no gap; which they are is to be known."""
    if tables.incomplete:
        return
    for series in tables.series.values():
        looked_up = [row for row in series if row.key.shape.token in BUCKETS]
        for before, after in pairwise(looked_up):
            first, last = before.key.shape.token, after.key.shape.token
            explained = tables.declarations.left_out_of(before) if tables.declarations else frozenset()
            missing = ", ".join(str(b) for b in BUCKETS if first < b < last and b not in explained)
            if missing and last <= BUCKETS[-2]:
                yield Finding(BUCKET_GAP, after.place, f"no row for {missing} between {before.place} and this one")


@check_tables
def lone_buckets(tables: Tables) -> Iterator[Finding]:
    for series in tables.series.values():
        for kind, sort in ((_families, "kernels"), (_swizzle, "stage-1 variant")):
            for at in range(1, len(series) - 1):
                before, own, after = (kind(row) for row in series[at - 1 : at + 2])
                if own and before == after != own and _unique(series, at, own, kind is _swizzle):
                    row = series[at]
                    message = (
                        f"bucket {row.key.shape.token} alone has {sort} {own}; its neighbours have {before or 'none'}"
                    )
                    yield Finding(LONE_BUCKET, row.place, message)


def _unique(series: Sequence[TunedRow], at: int, own: str, of_swizzle: bool) -> bool:
    """A swizzle is common enough that only a series' single one is worth a word."""
    return not of_swizzle or all(_swizzle(row) != own for i, row in enumerate(series) if i != at)


def _families(row: TunedRow) -> str:
    names = [name for name in (row.kernel1, row.kernel2) if name]
    parsed = [parse(name) for name in names]
    return " + ".join(kernel.family if kernel else "unknown" for kernel in parsed)


def _swizzle(row: TunedRow) -> str:
    kernel = parse(row.kernel1)
    return f"xcd{kernel.xcd}" if kernel and kernel.xcd else ""


@check_tables
def fallbacks(tables: Tables) -> Iterator[Finding]:
    primary = {row.key for row in tables.rows if row.tag != FALLBACK_TAG}
    for row in tables.rows:
        if row.tag == FALLBACK_TAG and row.key not in primary:
            yield Finding(NO_PRIMARY, row.place, f"{row.key} has no other row in these tables")
