"""What a command asks before it runs AITER's kernels: whether they can be run here."""

from __future__ import annotations

import click

from moeshapes.findings import printable
from moeshapes.verify.gpus import LocalGpus


def require_aiter() -> LocalGpus:
    """The GPUs here. Ends the command with what is missing where AITER's kernels cannot be run at all."""
    from moeshapes.doctor.checks import account, why_not_production
    from moeshapes.doctor.machine import look

    machine = look()
    missing = why_not_production(machine)
    if missing:
        told = "\n  ".join(map(printable, account(missing)))
        raise click.ClickException(
            f"AITER's kernels cannot run here:\n  {told}\n`moeshapes doctor` shows all that was found."
        )
    return machine.local
