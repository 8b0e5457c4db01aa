"""Rules about tflops and bw, which are functions of the key and us (contract 2.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moeshapes.dispatch import BUCKETS
from moeshapes.findings import Finding
from moeshapes.recipe import Format, format_of
from moeshapes.roofline import flops
from moeshapes.row import UntunedRow
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

CONTRADICTS = Rule(
    "MOE160", "throughput-contradicts", Severity.WARNING,
    what="tflops or bw is not what the key and us give.",
    why="us was copied from another row, edited without them, or the row was measured under another key.",
    fix="Restore the row from the tuner's output, or measure it again.",
)  # fmt: skip
MISSING = Rule(
    "MOE161", "throughput-missing", Severity.WARNING,
    what="tflops or bw is 0 or empty.",
    why="The tuner fills both: the row was not written by it, or not as it wrote it.",
    fix="Write what the key and us give, or leave a row that was published so: no lookup reads them.",
)  # fmt: skip

_TOLERANCE = 0.005
_ROUNDING = 0.006
"""The tuner rounds both to two decimals."""
_BYTES = {Format.BF16: 2.0, Format.FP8: 1.0, Format.INT8: 1.0, Format.INT4: 0.5}
_BYTES_OF_FP4 = (1.0, 0.5)
"""The tuner counts a whole byte for an fp4 element; some published rows count half a one."""


@check
def throughputs(subject: Subject) -> Iterator[Finding]:
    row = subject.row
    expected = {"tflops": (flops(row.key.shape) / row.us / 1e6,), "bw": bandwidths(row.key.shape, row.us)}
    stated = {"tflops": row.tflops, "bw": row.bw}
    missing = [name for name, values in expected.items() if values and not float(stated[name] or 0)]
    wrong = [name for name in expected if name not in missing and _differs(float(stated[name] or 0), expected[name])]
    if missing:
        given = ", ".join(f"{name} {expected[name][0]:.2f}" for name in missing)
        remedy = f"Write what the key and us give, {given}, or leave a row that was published so: no lookup reads them."
        yield subject.finding(MISSING, f"{' and '.join(missing)} 0 or empty", remedy)
    if wrong:
        given = " and ".join(f"{name} {stated[name]} (not {expected[name][0]:.2f})" for name in wrong)
        measured = _measured_at(subject, float(stated["tflops"])) if "tflops" in wrong else ""
        yield subject.finding(CONTRADICTS, f"{row.us:g} µs contradict {given}{measured}")


def _differs(stated: float, expected: Sequence[float]) -> bool:
    """Whether the value is none of those that there are."""
    return bool(expected) and all(abs(stated - value) > max(_ROUNDING, _TOLERANCE * value) for value in expected)


def bandwidths(shape: UntunedRow, us: float) -> tuple[float, ...]:
    """bw in GB/s by each way of counting fp4; none where a format has no known size."""
    a, w = format_of(shape.q_dtype_a), format_of(shape.q_dtype_w)
    if a is None or w is None:
        return ()
    weights = shape.expert * 3 * shape.inter_dim * shape.model_dim
    tokens = shape.token * shape.model_dim
    sizes = [{**_BYTES, Format.FP4: of_fp4} for of_fp4 in _BYTES_OF_FP4]
    return tuple((tokens * (size[a] + 2) + weights * size[w]) / us / 1e3 for size in sizes)


def throughput_cells(shape: UntunedRow, us: float) -> tuple[str, str]:
    """tflops and bw of a row as the tuner writes them; bw is empty where a format has no known size."""
    bandwidth = bandwidths(shape, us)
    return f"{flops(shape) / us / 1e6:.2f}", f"{bandwidth[0]:.2f}" if bandwidth else ""


def _measured_at(subject: Subject, tflops: float) -> str:
    """The token count whose tflops the row has, where that is a bucket."""
    row = subject.row
    token = tflops * row.us * 1e6 / flops(row.key.shape) * row.key.shape.token
    bucket = next((bucket for bucket in BUCKETS if abs(token - bucket) < 0.02 * bucket), None)
    return f": it is the time of {bucket} tokens" if bucket else ""
