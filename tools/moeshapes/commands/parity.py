"""`moeshapes parity`: AITER's untuned rows against the declared ones, file by file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from moeshapes.cli import FINDINGS, NOTHING_FOUND
from moeshapes.commands.options import aiter_option, format_option, root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.findings import as_data, has_errors, json_text, printable
from moeshapes.parity import FileParity, ParityResult, Surplus, compare
from moeshapes.repository import load_declarations

_COLUMNS = ("upstream", "declared", "missing", "surplus")


@click.command("parity")
@aiter_option
@root_option
@format_option
def command(configs: Path, root: Path, style: str) -> int:
    """Compare AITER's untuned fused-MoE tables with what is declared. A row of AITER's that no shape declares fails."""
    declarations, wrong = load_declarations(root)
    result = compare(configs, declarations)
    findings = [*wrong, *result.findings]
    if style == "json":
        document = {
            "files": [_as_json(file) for file in result.files],
            "not_compared": result.left_out,
            "findings": as_data(findings),
        }
        click.echo(json_text(document, indent=1))
        return FINDINGS if has_errors(findings) else NOTHING_FOUND
    click.echo("\n".join(_lines(result)), err=style != "text")
    return show(findings, style, f"{counted(len(result.files), 'file')}")


def _lines(result: ParityResult) -> Iterator[str]:
    width = max((len(file.csv) for file in result.files), default=0)
    yield f"{'':{width}}  " + "  ".join(f"{column:>8}" for column in _COLUMNS)
    totals = [0, 0, 0, 0]
    for file in result.files:
        numbers = (file.upstream, file.declared, file.missing, file.surplus_rows)
        totals = [total + number for total, number in zip(totals, numbers, strict=True)]
        yield f"{printable(file.csv):{width}}  " + "  ".join(f"{number:8}" for number in numbers)
    yield f"{'total':{width}}  " + "  ".join(f"{total:8}" for total in totals)
    for file in result.files:
        yield from (_surplus(file, surplus) for surplus in file.surplus)
    if result.left_out:
        yield f"not compared: {', '.join(map(printable, result.left_out))} (another family, with other columns)"


def _surplus(file: FileParity, surplus: Surplus) -> str:
    reason = surplus.reason or "no reason is given"
    return f"surplus: {counted(surplus.rows, 'row')} of {surplus.deployment} for {file.csv}: {printable(reason)}"


def _as_json(file: FileParity) -> dict[str, object]:
    return {
        "csv": file.csv,
        "upstream": file.upstream,
        "declared": file.declared,
        "missing": file.missing,
        "surplus": [{"deployment": s.deployment, "rows": s.rows, "reason": s.reason} for s in file.surplus],
    }
