"""`moeshapes select`: a tuner's best candidates through the verifier, and the fastest that is right into the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from moeshapes.commands.keeping import Keeping
from moeshapes.commands.options import format_option, root_option
from moeshapes.commands.outcome import counted, show
from moeshapes.commands.production import require_aiter
from moeshapes.commands.progress import progress
from moeshapes.commands.sign import sign_option
from moeshapes.findings import Finding, Place, has_errors, printable
from moeshapes.record import CACHE, RecordStore
from moeshapes.repository import load_declarations
from moeshapes.root import name_from
from moeshapes.select.choice import Choice, choose, findings_of
from moeshapes.select.faults import NO_CANDIDATES
from moeshapes.select.pairing import Offer, offers
from moeshapes.select.profile import read_profile
from moeshapes.select.trial import Bench, try_all
from moeshapes.select.tuner import SCRIPT, Request, profiles_of, tune
from moeshapes.select.wanted import Wanted
from moeshapes.verify.gpus import NO_GPUS, local_gpus
from moeshapes.verify.run import JOB_LIMIT_S, Verified, local_pool
from moeshapes.verify.site import AUTO, BACKENDS, EMULATE, Site
from moeshapes.verify.subjects import merged_tables, shipped_rows

_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def _required_note(context: click.Context, parameter: click.Parameter, given: str | None) -> str:
    if not given or not given.strip():
        example = '--source "MI355X, ROCm 7.0, AITER e4048607a5"'
        raise click.UsageError(f"say where the times come from, for example: {example}")
    return given


@click.command("select", short_help="Keep a tuner's fastest candidates that the verifier finds right.")
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...")
@click.option("--source", "note", callback=_required_note, help="Where the times come from. Required.")
@click.option("--rows", "selectors", multiple=True, help="Only candidates with `column=value,…`; may be repeated.")
@click.option("--top", type=click.IntRange(1, 100), default=3, show_default=True, help="Candidates of a kind and key.")
@click.option("--gfx", help="Only candidates for this architecture.")
@click.option("--cu-num", type=click.IntRange(min=1), help="Only candidates for so many compute units.")
@click.option("--backend", type=click.Choice(BACKENDS), default=AUTO, show_default=True)
@click.option("--fresh", is_flag=True, help="Judge again what stored records vouch for.")
@click.option("--limit", type=click.FloatRange(min=1), default=JOB_LIMIT_S, show_default=True, help="Seconds a job.")
@click.option("--allow-emulated", is_flag=True, help="Also adopt what passed in emulation alone, and say so.")
@click.option("--tune", "tunes", is_flag=True, help="FILE is an untuned table: AITER's tuner makes the profile.")
@click.option("--aiter", type=_DIRECTORY, help="With --tune, the AITER checkout whose tuner runs.")
@click.option("--err-ratio", type=click.FloatRange(0, 1), default=0.1, show_default=True, help="The tuner's own limit.")
@click.option("--mp", type=click.IntRange(min=1), help="GPUs that the tuner uses; by default all.")
@sign_option
@root_option
@format_option
def command(
    files: tuple[Path, ...],
    note: str,
    selectors: tuple[str, ...],
    top: int,
    gfx: str | None,
    cu_num: int | None,
    backend: str,
    fresh: bool,
    limit: float,
    allow_emulated: bool,
    tunes: bool,
    aiter: Path | None,
    err_ratio: float,
    mp: int | None,
    key: Path | None,
    root: Path,
    style: str,
) -> int:
    """Try the best candidates of a tuner's profile CSVs under every declared use, and adopt the fastest that is right.

    FILE has a line a kernel (AITER's profile_fmoe.csv) or a line a pair (what the tuner's -o2 and -o name). Of each
    declared key the cheapest --top candidates of a kind are judged as `verify` judges rows. The kinds are pairs with
    fused quantisation, pairs without, kernels of both stages: the tuner's times of these hold different work.

    With --tune, FILE is an untuned table, and AITER's gemm_moe_tune.py makes the profile first.
    """
    wanted = Wanted(gfx, cu_num, selectors)
    declarations, findings = load_declarations(root)
    findings += wanted.faults
    if has_errors(findings):
        return show(findings, style, "nothing tried")
    if tunes:
        request = _request(files, aiter, root, err_ratio, mp)
        click.echo(f"tuning {request.untuned}; its log: {request.log}", err=True)
        findings += tune(request)
        files = profiles_of(request)
    profiles = [read_profile(path, name_from(root, path)) for path in files]
    damage = [found for profile in profiles for found in profile.findings]
    if has_errors(damage):
        return show([*findings, *damage], style, "nothing tried")
    offered = offers(profiles, declarations, top, wanted.has)
    if not offered:
        nothing = _nothing(name_from(root, files[0]), sum(profile.useless for profile in profiles))
        return show([*findings, nothing], style, "nothing tried")
    site = Site(backend, NO_GPUS if backend == EMULATE else local_gpus())
    pool, store = local_pool(site.local.gpus, limit), RecordStore(root / CACHE)
    bench = Bench(declarations, site, merged_tables(root, site), pool, store, shipped_rows(root), fresh)
    choices = _try(offered, bench)
    keeping = Keeping(root, note, bench, key, style, allow_emulated)
    objections = keeping.keep(choices)
    return show([*findings, *findings_of(choices, allow_emulated), *objections], style, keeping.written)


def _request(files: Sequence[Path], aiter: Path | None, root: Path, err_ratio: float, mp: int | None) -> Request:
    """What is asked of the tuner. Ends the command where it cannot run."""
    if aiter is None or len(files) != 1:
        raise click.UsageError("--tune takes one untuned table, and --aiter DIR for the checkout of the tuner")
    if not (aiter / SCRIPT).is_file():
        raise click.UsageError(f"{aiter} has no {SCRIPT}: give a checkout of AITER")
    require_aiter()
    return Request(aiter, files[0], root / "build" / "select" / files[0].stem, err_ratio, mp)


def _nothing(name: str, useless: int) -> Finding:
    message = f"no candidate of a declared key is asked for; {counted(useless, 'line')} without a time or an error"
    return Finding(NO_CANDIDATES, Place(name), message)


def _try(offered: Sequence[Offer], bench: Bench) -> list[Choice]:
    """What becomes of each key; of each candidate it is told as it is known."""
    uses = (len(bench.declarations.uses_of(each.row)) for offer in offered for each in offer.candidates)
    with progress("select", sum(uses)) as report:
        return choose(offered, try_all(offered, bench, _telling(report)))


def _telling(report: Callable[[str], None]) -> Callable[[Verified], None]:
    def done(verified: Verified) -> None:
        row, status = verified.subject.row, verified.shown_status
        kernels = " + ".join(name for name in (row.kernel1, row.kernel2) if name) if row else ""
        report(printable(f"{status}: {verified.subject.key} {kernels} under {verified.subject.use.id}"))

    return done
