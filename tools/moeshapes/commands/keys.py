"""`moeshapes keys`: no two tuned rows with one key."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.commands.options import format_option, optional_aiter_option, tables_root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.keys import KeysResult, check_keys


@click.command("keys")
@tables_root_option
@optional_aiter_option
@click.option(
    "--against",
    "refs",
    multiple=True,
    metavar="REF",
    help="A branch or commit to merge with the working tree, and with the others given; may be repeated.",
)
@click.option("--fix", is_flag=True, help="Remove the loser of each collision whose recorded times can decide.")
@format_option
def command(root: Path, configs: Path | None, refs: tuple[str, ...], fix: bool, style: str) -> int:
    """Check that keys are unique over the tuned tables of this repository, or of an AITER checkout.

    With --aiter, over AITER's tables with ours laid over them. Nothing is written, but for --fix.
    """
    if fix and (configs or refs):
        raise click.UsageError("--fix writes to the tables of one tree: give it neither --aiter nor --against")
    if fix:
        _remove_losers(root, style)
    result = _check(root, configs, refs)
    return show(result.findings, style, _looked_at(result, refs))


def _remove_losers(root: Path, style: str) -> None:
    from moeshapes.mend import remove_losers  # reads kernel names: most runs do without

    removals = remove_losers(root)
    for removal in removals:
        click.echo(f"removed {removal.lost}; kept {removal.kept}: {removal.why}", err=style != "text")


def _check(root: Path, configs: Path | None, refs: tuple[str, ...]) -> KeysResult:
    if not refs:
        return check_keys(root, configs)
    from moeshapes.git import GitError

    try:
        return check_keys(root, configs, refs)
    except GitError as error:
        raise click.ClickException(str(error)) from error


def _looked_at(result: KeysResult, refs: tuple[str, ...]) -> str:
    parts = [f"{counted(result.rows, 'tuned row')} in {counted(result.tables, 'table')}"]
    if (overlay := result.overlay) is not None:
        counts = f"{overlay.new} new, {len(overlay.replaced)} replaced, {overlay.unchanged} unchanged"
        parts.append(f"{counted(len(overlay.entries), 'row')} merged with AITER's: {counts}")
    if refs:
        parts.append(f"merged with {', '.join(dict.fromkeys(refs))}")
    return "; ".join(parts)
