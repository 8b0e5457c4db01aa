"""`moeshapes import`: a config.json, an AITER table or a log as YAML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from moeshapes.cli import FINDINGS, NOTHING_FOUND
from moeshapes.commands.options import format_option, root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.files import write_atomically
from moeshapes.findings import Finding, Place, as_data, has_errors, json_text, printable
from moeshapes.importer import ALREADY_THERE, ImportResult, import_file
from moeshapes.repository import load_declarations
from moeshapes.root import name_from


@click.command("import", short_help="A config.json, an AITER table or log as YAML.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--checkpoint", default="", help="Where a config.json's weights are published: OWNER/NAME.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write below this directory (models/, shapes/), instead of printing. Existing files stay.",
)
@root_option
@format_option
def command(file: Path, checkpoint: str, output: Path | None, root: Path, style: str) -> int:
    """Turn FILE into model and shape files: a checkpoint's config.json, a fused-MoE table of AITER's, or a log.

    A log gives the shapes and buckets whose lookups missed, and how often. Backups and profiles are passed over.
    """
    declarations, wrong = load_declarations(root)
    result = import_file(file, name_from(root, file), checkpoint, declarations)
    findings = [*wrong, *result.findings, *(_write(result, output) if output else ())]
    if style == "json":
        told = {"files": dict(result.files), "counts": result.counts, "findings": as_data(findings)}
        click.echo(json_text(told, indent=1))
        return FINDINGS if has_errors(findings) else NOTHING_FOUND
    for line in result.counts:
        click.echo(printable(line), err=style != "text")
    if not output:
        for path, text in result.files.items():
            click.echo(f"# {path}\n{text}", err=style != "text")
    return show(findings, style, counted(len(result.files), "file"))


def _write(result: ImportResult, output: Path) -> Iterator[Finding]:
    """Writes what is not there yet; the rest are findings."""
    for path, text in result.files.items():
        if (output / path).exists():
            yield Finding(ALREADY_THERE, Place(path), "the file is there already, and stays as it is")
        else:
            write_atomically(output / path, text.encode())
            click.echo(f"wrote {path}", err=True)
