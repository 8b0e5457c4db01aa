"""What a verification found, as a table for a screen and as markdown, and the line that it ends with."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from moeshapes.claim import how_to_attest
from moeshapes.findings import Place, printable
from moeshapes.record_name import is_shipped
from moeshapes.report.evidence import Evidence
from moeshapes.report.figures import with_interval
from moeshapes.report.speed import BASELINE, Comparison, Speed, speed_of
from moeshapes.statement import EMULATED, FAIL, PROVEN, Statement
from moeshapes.verify.run import ERROR, SKIPPED, Verified
from moeshapes.verify.timing import SLOWER

HEADERS = ("shape", "tokens", "recipe", "row", "use", "verdict", "error / limit", "NaN", "deterministic", "probed")
_LISTED = 3
"""Rows that are named where many have one reason."""
SPEED = "time without → with, change (noise)"


def table(results: Sequence[Verified], markdown: bool = False) -> str:
    """A line a (row, use) that was judged: what is new after what was known, what is wrong last.

    Skipped ones are summed up by reason instead. What was timed has a cell for it, where anything was.
    """
    escape = _markdown_cell if markdown else printable
    judged = sorted((r for r in results if r.status != SKIPPED), key=_urgency)
    timed = any(_speed_of(result) for result in judged)
    rows = [[escape(cell) for cell in _cells(result) + ([_timing(result)] if timed else [])] for result in judged]
    style = "github" if markdown else "simple"
    # Cells are shown as they are: tabulate would take a shape for a number, and a bare `0` for a float.
    return tabulate(rows, [*HEADERS, SPEED] if timed else HEADERS, tablefmt=style, disable_numparse=True)


def _urgency(result: Verified) -> int:
    return 2 if result.status in (FAIL, ERROR) or is_slower(result) else 0 if result.cached else 1


def _speed_of(result: Verified) -> Speed | None:
    return speed_of(result.record) if result.record else None


def is_slower(result: Verified) -> bool:
    """Whether the row takes longer than what runs without it, or than the row that it replaces."""
    speed = _speed_of(result)
    return speed is not None and speed.verdict == SLOWER


def _timing(result: Verified) -> str:
    """`faster 497.5 → 395.6 µs, −20.4 % ± 0.1 (noise 0.1 %)`; what it replaces after what runs without it."""
    speed = _speed_of(result)
    if speed is None:
        return ""
    return f"{'; '.join(map(_compared, speed.comparisons))} (noise {100 * speed.noise_floor:.2g} %)"


def _compared(comparison: Comparison) -> str:
    what = "" if comparison.against == BASELINE else "than the replaced "
    times = f"{comparison.other_us:.1f} → {comparison.us:.1f} µs"
    return f"{comparison.verdict} {what}{times}, {with_interval(comparison.change)}"


def _cells(result: Verified) -> list[str]:
    subject, shape = result.subject, result.subject.key.shape
    row = "default plan" if subject.row is None else _short(subject.row.place)
    return [shape.dims, str(shape.token), subject.use.recipe, row, subject.use.id, result.status, *_figures(result)]


def _short(place: Place) -> str:
    """A table's name and line: all tables have names of their own, and folders would fill the screen."""
    return str(Place(place.file.rpartition("/")[2], place.line))


def _figures(result: Verified) -> list[str]:
    if result.record is None:
        return ["", "", "", ""]
    said = Statement(result.record)
    return [
        f"{said.over_limit:.3f}",
        str(said.worst_bad_values),
        "yes" if said.deterministic else f"no, ±{said.spread:.2g}",
        f"{100 * result.record['numerics']['probes']['share']:.3g} %",
    ]


def details(results: Sequence[Verified]) -> str:
    """Why rows failed or could not be judged, and what was skipped or only emulated, a reason a line."""
    lines = [
        f"{result.status}: {_who(result)}\n    {_indented(result.note)}"
        for result in results
        if result.status in (FAIL, ERROR)
    ]
    lines += [f"slower: {_who(result)}\n    {_timing(result)}" for result in results if is_slower(result)]
    less: defaultdict[tuple[str, str], list[Verified]] = defaultdict(list)
    for result in results:
        if result.status in (SKIPPED, EMULATED) and result.note:
            less[result.status, result.note].append(result)
    lines += [line for (status, why), those in sorted(less.items()) for line in _summed_up(status, why, those, results)]
    return "\n".join(lines)


def _summed_up(status: str, reason: str, those: Sequence[Verified], results: Sequence[Verified]) -> Iterator[str]:
    """`emulated 10 of 189: no sm_90/132 GPU is here`, and which those are."""
    total = sum(result.status == status for result in results)
    yield f"{status} {len(those)}{f' of {total}' if total > len(those) else ''}: {printable(reason)}"
    yield from (f"    {_who(result)}" for result in those[:_LISTED])
    if more := len(those[_LISTED:]):
        yield f"    and {more} more, which `--format json` lists"


def _who(result: Verified) -> str:
    return printable(f"{result.subject.name} under {result.subject.use.id}")


def _indented(note: str) -> str:
    return "\n    ".join(printable(line) for line in note.splitlines())


def closing_lines(results: Sequence[Verified], seconds: float, lacking: str = "") -> list[str]:
    """What was judged; before it, where there is something, what is `lacking`."""
    return [line for line in (lacking, closing_line(results, seconds)) if line]


def lacking_line(results: Sequence[Verified], changed: str, evidence: Evidence) -> str:
    """What `gate` will still ask for of the rows that changed since a branch, and how they get it; empty for nothing.

    Rows that were emulated because that was asked for may have their records all the same.
    """
    keys = [result.subject.key for result in results if _is_lacking(result, evidence)]
    if not keys:
        return ""
    what = f"{_rows_by_uses(len(keys))} without an attested record, which `gate` asks for"
    return printable(f"{what}: {how_to_attest(keys, f'--changed {changed}', by_label=True)}")


def _is_lacking(result: Verified, evidence: Evidence) -> bool:
    row, use = result.subject.row, result.subject.use
    if row is None or result.status not in (EMULATED, SKIPPED) or not is_shipped(row.place.file):
        return False
    record = evidence.attested(row, use)
    return record is None or record["status"] == EMULATED


def closing_line(results: Sequence[Verified], seconds: float) -> str:
    """`35 rows × uses judged: 35 emulated (0 from the cache), 0 fail, 0 error; 4 skipped; 61 s`.

    Rows that are proven come first, where there are any.
    """
    counts = Counter(result.status for result in results)
    cached = Counter(result.status for result in results if result.cached and not result.committed)
    committed = sum(result.committed for result in results)
    judged = sum(counts[status] for status in (PROVEN, EMULATED, FAIL, ERROR))
    rests = f"{committed} by committed records, {cached[PROVEN]} from the cache"
    proven = f"{counts[PROVEN]} {PROVEN} ({rests}), " if counts[PROVEN] else ""
    return (
        f"{_rows_by_uses(judged)} judged: {proven}{counts[EMULATED]} {EMULATED} "
        f"({cached[EMULATED]} from the cache), {counts[FAIL]} {FAIL}, "
        f"{counts[ERROR]} {ERROR}; {counts[SKIPPED]} {SKIPPED}; {seconds:.0f} s"
    )


def _rows_by_uses(number: int) -> str:
    return "1 row × use" if number == 1 else f"{number} rows × uses"


def markdown(results: Sequence[Verified], seconds: float, lacking: str = "") -> str:
    """The whole verification as markdown, for a pull request or a job summary."""
    closing = map(_markdown_cell, closing_lines(results, seconds, lacking))
    parts = ["### moeshapes verify", *closing, table(results, markdown=True)]
    problems = details(results)
    if problems:
        parts.append("```text\n" + problems.replace("```", "'''") + "\n```")
    return "\n\n".join(parts) + "\n"


def _markdown_cell(cell: str) -> str:
    """A cell in which nothing is markup: a table's name may come from a pull request."""
    escaped = printable(cell).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*~|\[\]])", r"\\\1", escaped)
