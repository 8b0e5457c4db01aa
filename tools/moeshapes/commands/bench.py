"""`moeshapes bench`: the figures that the documentation quotes, measured here and now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from tabulate import tabulate

from moeshapes import bench_tables
from moeshapes.bench import CONTENDERS, PROBLEM, REFERENCE, TOKENS, Figure, available_gib, measure, needed_gib
from moeshapes.commands.options import optional_aiter_option, root_option
from moeshapes.commands.progress import progress


@click.command("bench")
@optional_aiter_option
@click.option("--gpu", is_flag=True, help="Instead, the timing and the portable kernels on the GPU that is here.")
@root_option
def command(configs: Path | None, gpu: bool, root: Path) -> None:
    """Time commands from a cold process, and the reference against the loops that tests usually compare with."""
    if gpu:
        _on_gpu(root)
        return
    fitting = [name for name in CONTENDERS if needed_gib(name) <= available_gib()]
    commands, references = [], []
    with progress("bench of commands", bench_tables.count(configs)) as report:
        for figure in bench_tables.figures(root, configs):
            commands.append(figure)
            report(f"moeshapes {figure.command}, {figure.tables}")
    # Apart, since they take longer: one forecast would be wrong of both.
    with progress("bench of references", len(fitting)) as report:
        for name in fitting:
            references.append(measure(name))
            report(name)
    click.echo(tabulate(bench_tables.table_rows(commands), bench_tables.HEADERS, disable_numparse=True))
    click.echo()
    click.echo(_references(references))
    for name in CONTENDERS:
        if name not in fitting:
            click.echo(f"left out: {name} needs about {needed_gib(name):.0f} GiB, {available_gib():.0f} are free")


def _on_gpu(root: Path) -> None:
    from moeshapes import bench_gpu, bench_kernels

    headers = {"timing": bench_gpu.TIMING_HEADERS, "kernels": bench_kernels.KERNEL_HEADERS}
    for name, columns in headers.items():
        with progress(name, 1) as report:
            rows = bench_gpu.part(name, root)
            report(name)
        click.echo(tabulate(rows, columns, disable_numparse=True))
        click.echo()


def _references(figures: Sequence[Figure]) -> str:
    base = next(figure.seconds for figure in figures if figure.contender == REFERENCE)
    shape = f"{PROBLEM.expert}/{PROBLEM.topk} {PROBLEM.model_dim}x{PROBLEM.inter_dim}"
    dims = f"{shape} {PROBLEM.recipe_name}, {TOKENS} tokens"
    rows = [[f.contender, f"{f.seconds:.1f} s", f"{f.seconds / base:.1f} x", f"{f.peak_gib:.1f} GiB"] for f in figures]
    headers = [f"{dims}, decode included", "time", "over the reference", "peak memory"]
    return tabulate(rows, headers, disable_numparse=True)
