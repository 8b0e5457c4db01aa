"""`moeshapes doctor`: what this machine lacks to run AITER's kernels, and how to get it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from moeshapes.cli import CANNOT_RUN, FINDINGS, NOTHING_FOUND
from moeshapes.doctor.checks import account, backends, checks, why_not_production
from moeshapes.doctor.machine import Machine, look
from moeshapes.doctor.trial import Trial, try_aiter
from moeshapes.findings import json_text, printable


@click.command("doctor", short_help="Say what this machine lacks to run AITER's kernels, and how to get it.")
@click.option("--trial/--no-trial", default=True, show_default=True, help="Run a small fused MoE where AITER can.")
@click.option("--format", "style", type=click.Choice(("text", "json")), default="text", show_default=True)
def command(trial: bool, style: str) -> int:
    """Look for AMD's driver, the GPUs, ROCm, torch, Triton, AITER and FlyDSL, and run one small fused MoE on AITER.

    Exit status: 0 where AITER's kernels run and compute what they should, 1 where they do not, 2 where they cannot run.
    """
    machine = look()
    runnable = not why_not_production(machine)
    if runnable and trial:
        click.echo("trying AITER: what it calls for the first time it compiles, which may take minutes", err=True)
    tried = try_aiter(machine.local.gpus[0]) if runnable and trial else None
    if style == "json":
        click.echo(json_text(_as_json(machine, tried), indent=1))
    else:
        click.echo("\n".join(map(printable, _as_text(machine, tried))))
    if not runnable:
        return CANNOT_RUN
    return FINDINGS if tried and tried.wrong else NOTHING_FOUND


def _as_text(machine: Machine, tried: Trial | None) -> Iterator[str]:
    yield from account(checks(machine))
    yield from (f"GPU {number}: {card}" for number, card in enumerate(machine.cards))
    yield ""
    for backend, reason in backends(machine).items():
        yield f"{backend}: {f'cannot run here: {reason}' if reason else 'can run here'}"
    if tried:
        yield f"trial on {tried.gpu}: {f'failed: {tried.wrong}' if tried.wrong else 'passed'}"
        yield from (f"  ran {kernel}" for kernel in tried.launched)


def _as_json(machine: Machine, tried: Trial | None) -> dict[str, object]:
    """`checks`: each with what is `wrong`, empty where nothing is. `backends`: why each cannot run, empty if it can."""
    return {
        "checks": [asdict(check) for check in checks(machine)],
        "cards": [asdict(card) for card in machine.cards],
        "torch_gpus": [asdict(gpu) for gpu in machine.local.gpus],
        "backends": backends(machine),
        "trial": asdict(tried) if tried else None,
    }
