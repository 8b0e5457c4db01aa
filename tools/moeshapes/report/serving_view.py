"""Tables of serving, arm against arm: cells as text, for a terminal, and for markdown once they are escaped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median, quantiles

from markupsafe import Markup
from tabulate import tabulate

from moeshapes.findings import printable
from moeshapes.report.figures import microseconds, percent, with_interval
from moeshapes.report.markdown import Section, cell
from moeshapes.report.render import environment
from moeshapes.report.serving import Pair
from moeshapes.report.speed import Change
from moeshapes.report.steps import Step, Steps

_KERNELS_SHOWN = 12
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""A header, and rows of as many cells."""


@dataclass(frozen=True)
class Reference:
    """A throughput to be measured by, in tokens a second and GPU; of one shape, or of the only one there is."""

    name: str
    throughput: float
    lengths: tuple[int, int, int | None] | None = None


@dataclass(frozen=True)
class Serving:
    """The names of two arms, what was compared of them on how many GPUs, and decode steps by the name of their arm."""

    names: tuple[str, ...]
    pairs: tuple[Pair, ...]
    gpus: int
    references: tuple[Reference, ...]
    steps: Mapping[str, Steps]


def as_text(serving: Serving) -> str:
    """For a terminal."""
    tables = (pairs_table(serving), steps_table(serving.steps), kernels_table(serving.steps))
    return "".join(f"{_text(table)}\n\n" for table in tables if table[1])


def _text(table: Table) -> str:
    header, rows = table
    safe = [[printable(each) for each in row] for row in rows]
    return tabulate(safe, [printable(each) for each in header], tablefmt="simple", disable_numparse=True)


def as_markdown(serving: Serving) -> str:
    """For a pull request."""
    pairs, steps, kernels = (
        _section(table) for table in (pairs_table(serving), steps_table(serving.steps), kernels_table(serving.steps))
    )
    return (
        environment()
        .get_template("serving.md.j2")
        .render(
            names=Markup(", ").join(map(cell, serving.names)),
            pairs=pairs,
            steps=steps,
            kernels=kernels,
        )
    )


def _section(table: Table) -> Section:
    header, rows = table
    names = tuple(str(cell(name)) for name in header)
    return Section("", "", names, importance=0, rows=tuple(tuple(map(cell, row)) for row in rows))


def pairs_table(serving: Serving) -> Table:
    """A row a shape: throughput a GPU, time a token, both changes, and the share of each reference."""
    one, other = (*serving.names, "", "")[:2]
    named = [reference.name for reference in serving.references]
    header = (
        *("in/out tokens, requests", "rounds", f"{one} tok/s/GPU", f"{other} tok/s/GPU", "change"),
        *(f"{one} TPOT ms", f"{other} TPOT ms", "change of TPOT"),
        *(f"{other} / {name}" for name in dict.fromkeys(named)),
    )
    return header, [tuple(_pair_cells(pair, serving)) for pair in serving.pairs]


def _pair_cells(pair: Pair, serving: Serving) -> Iterator[str]:
    yield pair.shape
    yield str(len(pair.rounds))
    per_gpu = [throughput / serving.gpus for throughput in pair.throughputs]
    yield from (f"{throughput:.1f}" for throughput in per_gpu)
    yield change_text(pair.throughput_change)
    yield from (f"{tpot:.2f}" for tpot in pair.tpots_ms)
    yield change_text(pair.tpot_change)
    for name in dict.fromkeys(reference.name for reference in serving.references):
        yield _ratio(per_gpu[1], [r for r in serving.references if r.name == name], pair)


def _ratio(throughput: float, references: Sequence[Reference], pair: Pair) -> str:
    found = next((r for r in references if r.lengths in (None, pair.lengths)), None)
    return f"{throughput / found.throughput:.3f} of {found.throughput:g}" if found else ""


def change_text(change: Change) -> str:
    return with_interval(change) if isfinite(change.high) else f"{percent(change.centre)}, one round"


def steps_table(by_arm: Mapping[str, Steps]) -> Table:
    """A row a kind of step and arm; below the second arm's, how its medians differ from the first's."""
    rows: list[tuple[str, ...]] = []
    first: dict[str, list[Step]] = {}
    for name, found in by_arm.items():
        for kind, steps in _by_kind(found.steps).items():
            before = first.setdefault(kind, steps)
            rows.append((name, kind, str(len(steps)), *_step_cells(steps, before if before is not steps else None)))
    rows.sort(key=lambda row: row[1])
    return ("arm", "steps of", "steps", "MoE µs a step", "wall µs a step", "MoE share", "change: MoE, wall"), rows


def _by_kind(steps: Sequence[Step]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    for step in steps:
        found.setdefault(step.kind, []).append(step)
    return found


def _step_cells(steps: Sequence[Step], before: Sequence[Step] | None) -> Iterator[str]:
    moe, wall = ([step.moe_us for step in steps], [step.wall_us for step in steps])
    yield _spread(moe)
    yield _spread(wall)
    yield f"{100 * median(moe) / median(wall):.1f} %" if median(wall) else "–"
    if before is None:
        yield ""
    else:
        old = (median(step.moe_us for step in before), median(step.wall_us for step in before))
        yield ", ".join(
            percent(median(new) / was - 1) if was else "–" for new, was in zip((moe, wall), old, strict=True)
        )


def _spread(values: Sequence[float]) -> str:
    """`812 [798, 840]`: the median, the 5th and the 95th percentile."""
    middle = microseconds(median(values))
    if len(values) < 2:
        return middle
    cuts = quantiles(values, n=20, method="inclusive")
    return f"{middle} [{microseconds(cuts[0])}, {microseconds(cuts[-1])}]"


def kernels_table(by_arm: Mapping[str, Steps]) -> Table:
    """What was taken for kernels of the MoE, so that a reader can tell whether it is."""
    rows: list[tuple[str, ...]] = []
    for name, found in by_arm.items():
        shown = list(found.kernels.items())
        rows += [(name, kernel, microseconds(us)) for kernel, us in shown[:_KERNELS_SHOWN]]
        if len(shown) > _KERNELS_SHOWN:
            rest = sum(us for _, us in shown[_KERNELS_SHOWN:])
            rows.append((name, f"{len(shown) - _KERNELS_SHOWN} others", microseconds(rest)))
    return ("arm", "kernel", "µs a step"), rows
