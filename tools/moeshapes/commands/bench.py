"""`moeshapes bench`: the figures that the documentation quotes, measured here and now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from tabulate import tabulate

from moeshapes.bench import CONTENDERS, PROBLEM, REFERENCE, TOKENS, Figure, available_gib, measure, needed_gib
from moeshapes.cold_start import RUNS, ColdStart, cold_start
from moeshapes.commands.options import root_option
from moeshapes.commands.progress import progress

COLD = (("keys",), ("generate", "--check"), ("check",))


@click.command("bench")
@root_option
def command(root: Path) -> None:
    """Time commands from a cold process, and the reference against the loops that tests usually compare with."""
    fitting = [name for name in CONTENDERS if needed_gib(name) <= available_gib()]
    starts, figures = [], []
    with progress("bench", len(COLD) + len(fitting)) as report:
        for arguments in COLD:
            starts.append(cold_start(arguments, root))
            report(f"moeshapes {' '.join(arguments)}")
        for name in fitting:
            figures.append(measure(name))
            report(name)
    click.echo(_starts(starts))
    click.echo()
    click.echo(_references(figures))
    for name in CONTENDERS:
        if name not in fitting:
            click.echo(f"left out: {name} needs about {needed_gib(name):.0f} GiB, {available_gib():.0f} are free")


def _starts(starts: Sequence[ColdStart]) -> str:
    rows = [
        [f"moeshapes {' '.join(s.arguments)}", f"{s.median:.2f} s", f"{s.least:.2f} s", f"{s.most:.2f} s"]
        for s in starts
    ]
    return tabulate(rows, [f"cold process, {RUNS} runs", "median", "least", "most"], disable_numparse=True)


def _references(figures: Sequence[Figure]) -> str:
    base = next(figure.seconds for figure in figures if figure.contender == REFERENCE)
    shape = f"{PROBLEM.expert}/{PROBLEM.topk} {PROBLEM.model_dim}x{PROBLEM.inter_dim}"
    dims = f"{shape} {PROBLEM.recipe_name}, {TOKENS} tokens"
    rows = [[f.contender, f"{f.seconds:.1f} s", f"{f.seconds / base:.1f}", f"{f.peak_gib:.1f} GiB"] for f in figures]
    headers = [f"{dims}, decode included", "time", "over the reference's", "peak memory"]
    return tabulate(rows, headers, disable_numparse=True)
