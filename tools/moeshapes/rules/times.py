"""Rules about times that one row alone shows to be wrong."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.device import PEAKS
from moeshapes.findings import Finding
from moeshapes.roofline import compute_time, expected_experts, read_time
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

NOT_THE_SUM = Rule(
    "MOE150", "time-not-sum", Severity.ERROR,
    what="us is not us1 + us2.",
    why="One of the three was edited or belongs to another measurement, and AITER's merge trusts us.",
    fix="Restore the times from the tuner's output. A combined time has us1 = us and us2 = 0.",
)  # fmt: skip
FASTER_THAN_MEMORY = Rule(
    "MOE151", "faster-than-memory", Severity.ERROR,
    what="A row's time is less than reading the weights of topk experts takes at the architecture's peak bandwidth.",
    why="Every token needs topk experts: the kernels did not do their work, or the time is another row's.",
    fix="Measure the row again, and verify its numerics first.",
)  # fmt: skip
FASTER_THAN_COMPUTE = Rule(
    "MOE152", "faster-than-compute", Severity.ERROR,
    what="A row's time is less than its operations take at the architecture's peak rate.",
    why="No kernel exceeds the peak: the time was measured with fewer tokens, mostly it is a smaller bucket's.",
    fix="Measure the row at its own token count.",
)  # fmt: skip
FASTER_THAN_EXPECTED = Rule(
    "MOE153", "faster-than-expected", Severity.WARNING,
    what="A row's time is well under what reading the experts that random routing hits takes at peak bandwidth.",
    why="The tuner routes at random: such a time comes of concentrated routing, another method, or work left undone.",
    fix="Measure the row with the tuner's own routing, and say which routing it was.",
)  # fmt: skip
UNROUNDED = Rule(
    "MOE158", "unrounded-time", Severity.INFO,
    what="A time has more decimals than a tuner writes.",
    why="It was computed or copied by hand; the digits say nothing.",
    fix="Write it with four decimals.",
)  # fmt: skip

_TOLERANCE = 0.002
_WELL_UNDER = 0.8
_MAX_DECIMALS = 6


@check
def sums(subject: Subject) -> Iterator[Finding]:
    row = subject.row
    parts = row.us1 + row.us2
    if abs(row.us - parts) > _TOLERANCE * row.us:
        yield subject.finding(NOT_THE_SUM, f"us is {row.us:g}, but us1 + us2 = {row.us1:g} + {row.us2:g} = {parts:g}")


@check
def floors(subject: Subject) -> Iterator[Finding]:
    row, shape = subject.row, subject.row.key.shape
    memory, compute = read_time(row.key, shape.topk), compute_time(row.key)
    if memory is not None and row.us < memory:
        bandwidth = f"{PEAKS[row.key.gfx].bandwidth / 1e12:g} TB/s of {row.key.gfx}"
        message = f"{row.us:g} µs, but the weights of {shape.topk} experts take {memory:.5g} µs at the {bandwidth}"
        yield subject.finding(FASTER_THAN_MEMORY, message)
    elif compute is not None and row.us < compute:
        message = f"{row.us:g} µs, but {shape.token} tokens take {compute:.5g} µs at the peak of {row.key.gfx} with"
        yield subject.finding(FASTER_THAN_COMPUTE, f"{message} {row.key.cu_num} compute units")
    elif memory is not None and not row.is_portable:  # those are timed under the verifier's own, skewed routing
        yield from _expectation(subject)


def _expectation(subject: Subject) -> Iterator[Finding]:
    row = subject.row
    experts = expected_experts(row.key.shape)
    expected = read_time(row.key, experts)
    if expected is not None and row.us < _WELL_UNDER * expected:
        message = (
            f"{row.us:g} µs, but {row.key.shape.token} tokens routed at random hit {experts:.0f} experts, whose weights"
        )
        yield subject.finding(FASTER_THAN_EXPECTED, f"{message} take {expected:.5g} µs at peak bandwidth")


@check
def decimals(subject: Subject) -> Iterator[Finding]:
    row = subject.row
    for column, value in (("us1", row.us1), ("us2", row.us2), ("us", row.us)):
        if len(repr(value).partition(".")[2]) > _MAX_DECIMALS and "e" not in repr(value):
            yield subject.finding(UNROUNDED, f"{column} is {value!r} µs", f"Write `{value:.4f}`.")
            return
