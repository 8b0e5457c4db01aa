"""`moeshapes gate`: what blocks a pull request."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.commands.options import format_option, optional_aiter_option, root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.gate.run import GateResult, gate
from moeshapes.git import GitError


@click.command("gate")
@click.option(
    "--base", "ref", required=True, metavar="REF", help="The branch or commit that this change is to be merged into."
)
@click.option(
    "--require-signature",
    "signers",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Allowed signers, as ssh-keygen's manual describes them: only records that one of them signed count.",
)
@click.option(
    "--against",
    "others",
    multiple=True,
    metavar="REF",
    help="Another branch that may be merged first; may be repeated.",
)
@optional_aiter_option
@root_option
@format_option
def command(
    ref: str, signers: Path | None, others: tuple[str, ...], configs: Path | None, root: Path, style: str
) -> int:
    """Judge what this tree changes since it left the base: keys, new lint errors, and the evidence of every row.

    New and changed tuned rows need a record that passes, made on their GPU, under each use. What was there before and
    has none is counted, and does not block. policy.yaml of the base says how much is asked.
    """
    try:
        result = gate(root, ref, configs, others, signers)
    except GitError as error:
        raise click.ClickException(str(error)) from error
    return show(result.findings, style, _looked_at(result))


def _looked_at(result: GateResult) -> str:
    diff = result.diff
    rows = {"new": diff.new, "changed": diff.changed, "measured again": diff.retimed, "removed": diff.removed}
    told = ", ".join(f"{len(found)} {how}" for how, found in rows.items() if found) or "no row new or changed"
    to_prove = len(diff.to_prove)
    parts = [f"since {result.base} {told}"]
    parts += [f"{result.proven} of {to_prove} proven"] if to_prove else []
    parts += [f"{counted(result.unproven, 'row')} unproven that {_were(result.unproven)} there before"]
    parts += [f"{counted(result.unread, 'line')} of tables cannot be read"] if result.unread else []
    parts += [f"{result.waived} waived"] if result.waived else []
    return "; ".join(parts)


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
