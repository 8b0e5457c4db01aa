"""`moeshapes export`: declared and tuned rows into an AITER checkout."""

from __future__ import annotations

from pathlib import Path

import click

from moeshapes.cli import FINDINGS, NOTHING_FOUND
from moeshapes.commands.models import models_argument, narrowed
from moeshapes.commands.options import aiter_option, format_option, root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.export import AFTERWARDS, ExportResult, FileChange, plan_export, write_export
from moeshapes.findings import as_data, has_errors, json_text, printable
from moeshapes.repository import load_declarations


@click.command("export")
@models_argument
@aiter_option
@click.option("--dry-run", is_flag=True, help="Write nothing; show what would change as a diff.")
@root_option
@format_option
def command(models: tuple[str, ...], configs: Path, dry_run: bool, root: Path, style: str) -> int:
    """Merge this repository's untuned and tuned rows into AITER's tables, by key; all of them or none.

    MODEL narrows it to the rows that models declare, and to the tuned rows of those keys.
    Rows, columns and their order that are there stay as they are. A row of the same key in the same table is replaced;
    in another one it is a collision, and nothing is written.
    """
    declarations, wrong = load_declarations(root)
    asked = narrowed(declarations, models)
    result = ExportResult((), ()) if has_errors(wrong) else plan_export(root, configs, asked, undeclared=not models)
    findings = [*wrong, *result.findings]
    if not dry_run:
        write_export(result.changes)
    if style == "json":
        changes = [{"file": c.name, "added": c.added, "replaced": c.replaced, "diff": c.diff()} for c in result.changes]
        told = {"changes": changes, "written": not dry_run, "findings": as_data(findings)}
        click.echo(json_text(told, indent=1))
        return FINDINGS if has_errors(findings) else NOTHING_FOUND
    for change in result.changes:
        _print(change, dry_run, to_stderr=style != "text")
    for line in AFTERWARDS if result.changes else ():
        click.echo(line, err=True)
    return show(findings, style, f"{counted(len(result.changes), 'file')} to change" if dry_run else "")


def _print(change: FileChange, dry_run: bool, to_stderr: bool) -> None:
    if dry_run:
        click.echo("\n".join(map(printable, change.diff().splitlines())), err=to_stderr)
    else:
        counts = f"{counted(change.added, 'row')} added, {change.replaced} replaced"
        click.echo(f"wrote {printable(change.name)}: {counts}", err=to_stderr)
