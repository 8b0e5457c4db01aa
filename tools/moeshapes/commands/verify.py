"""`moeshapes verify`: judges rows × uses and keeps the evidence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from moeshapes.cli import FINDINGS, NOTHING_FOUND
from moeshapes.commands.options import format_option, root_option
from moeshapes.commands.outcome import show
from moeshapes.commands.production import require_aiter
from moeshapes.commands.progress import progress
from moeshapes.commands.sign import sign_attested, sign_option
from moeshapes.commands.weights import asked_layer, take_weights, weights_line, weights_options
from moeshapes.files import write_atomically, write_where_told
from moeshapes.findings import Finding, as_data, has_errors, json_text, printable
from moeshapes.git import GitError
from moeshapes.record import CACHE, RECORDS, REPORT, RecordStore
from moeshapes.report.evidence import Evidence
from moeshapes.statement import FAIL
from moeshapes.verify.gpus import NO_GPUS, LocalGpus, local_gpus
from moeshapes.verify.run import ERROR, JOB_LIMIT_S, Verified, local_pool, run
from moeshapes.verify.site import AUTO, BACKENDS, EMULATE, PRODUCTION, Site
from moeshapes.verify.subjects import Asked, plan_of
from moeshapes.verify.summary import closing_lines, details, is_slower, lacking_line, markdown, table


@click.command("verify", short_help="Judge tuned rows and declared uses against references.")
@click.argument("tables", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--backend", type=click.Choice(BACKENDS), default=AUTO, show_default=True)
@click.option("--fresh", is_flag=True, help="Judge again what stored records vouch for.")
@click.option("--changed", metavar="REF", help="Only rows that are new or launch something else since this branch.")
@click.option("--speed/--no-speed", default=True, show_default=True, help="Time rows that run on a GPU.")
@click.option("--limit", type=click.FloatRange(min=1), default=JOB_LIMIT_S, show_default=True, help="Seconds a job.")
@click.option("--summary", type=click.Path(dir_okay=False, path_type=Path), help="Also write a markdown summary there.")
@weights_options
@sign_option
@root_option
@format_option
def command(
    tables: tuple[Path, ...],
    backend: str,
    fresh: bool,
    changed: str | None,
    speed: bool,
    limit: float,
    summary: Path | None,
    weights: Path | None,
    layer: str | None,
    rank: int,
    key: Path | None,
    root: Path,
    style: str,
) -> int:
    """Judge every tuned row under every declared use and, for each declared use, a default plan at buckets 1 and 8.

    With TABLES, judge the rows of those tuned CSVs alone. Rows run on a GPU of their kind where there is one, AITER's
    where it is installed, and read `proven`. Others rest on their committed proofs, or are emulated: that proves a
    recipe and this harness, never the silicon.

    What runs on a GPU is timed against what runs without the row and, with --changed, against the row that it replaces.

    With --weights, judge what has the shape of that layer, with its weights, its norm and its router.
    """
    started = time.monotonic()
    stored, damage = asked_layer(weights, layer)
    if damage:
        click.echo(_as_json(damage, [])) if style == "json" else show(damage, style)
        return FINDINGS
    site = Site(backend, _gpus_for(backend))
    asked = Asked(tables, changed, speed and not stored)
    try:
        planned, findings = plan_of(root, asked, site)
    except GitError as error:
        raise click.UsageError(str(error)) from error
    planned = take_weights(planned, stored, rank) if stored else planned
    if findings and style != "json":
        show(findings, style)
    committed = Evidence(root)
    with progress("verify", sum(item.job is not None for item in planned)) as report:
        store = RecordStore(root / CACHE, root / RECORDS)
        pool = local_pool(site.local.gpus, limit)

        def done(verified: Verified) -> None:
            sign_attested(verified.saved, root, key)
            report(_line(verified))

        results = run(planned, store, pool, fresh, done, committed)
    seconds = time.monotonic() - started
    lacking = lacking_line(results, changed, committed) if changed else ""
    written = markdown(results, seconds, lacking).encode()
    write_atomically(root / REPORT, written)
    if summary:
        write_where_told(summary, written)
    if style == "json":
        click.echo(_as_json(findings, results))
    else:
        click.echo("\n".join(part for part in (table(results), details(results), weights_line(results)) if part))
    for line in closing_lines(results, seconds, lacking):
        click.echo(line, err=style == "json")
    wrong = has_errors(findings) or any(result.status in (FAIL, ERROR) or is_slower(result) for result in results)
    return FINDINGS if wrong else NOTHING_FOUND


def _gpus_for(backend: str) -> LocalGpus:
    """The GPUs that the backend may use. Ends the command where AITER's is asked for and cannot run."""
    if backend == PRODUCTION:
        return require_aiter()
    return NO_GPUS if backend == EMULATE else local_gpus()


def _line(verified: Verified) -> str:
    return printable(f"{verified.shown_status}: {verified.subject.name} under {verified.subject.use.id}")


def _as_json(findings: Sequence[Finding], results: Sequence[Verified]) -> str:
    """One document: what is wrong with the sources, and what became of each (row, use)."""
    told = {"findings": as_data(findings), "results": [_result_as_json(result) for result in results]}
    return json_text(told, indent=1)


def _result_as_json(result: Verified) -> dict[str, object]:
    return {
        "name": result.subject.name,
        "use": result.subject.use.id,
        "status": result.status,
        "note": result.note,
        "record": result.record,
    }
