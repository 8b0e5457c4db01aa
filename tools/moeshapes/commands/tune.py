"""`moeshapes tune`: candidates of the portable kernels through the verifier, and the fastest that is proven kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import click

from moeshapes.commands.keeping import Keeping
from moeshapes.commands.options import format_option, root_option
from moeshapes.commands.outcome import show
from moeshapes.commands.progress import progress
from moeshapes.commands.sign import sign_option
from moeshapes.expand import DeclaredRow
from moeshapes.findings import Finding, has_errors
from moeshapes.record import CACHE, RecordStore
from moeshapes.repository import load_declarations
from moeshapes.select.trial import Bench
from moeshapes.tokens import parse_tokens
from moeshapes.tune.budget import Budget
from moeshapes.tune.faults import BUDGET_SPENT, NOT_TUNABLE, NOTHING_FASTER
from moeshapes.tune.memory import Memory
from moeshapes.tune.space import read_space
from moeshapes.tune.target import Target, targets_of
from moeshapes.tune.tuner import Result, Tuner
from moeshapes.verify.gpus import Gpu, LocalGpus, local_gpus
from moeshapes.verify.merged_tables import MergedTables
from moeshapes.verify.plan import versions_in_use
from moeshapes.verify.run import local_pool
from moeshapes.verify.site import PORTABLE, Site
from moeshapes.verify.subjects import shipped_rows
from moeshapes.yaml_text import flow, tokens_value

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_LIMIT_S = 300.0


def _buckets(context: click.Context, parameter: click.Parameter, given: str | None) -> frozenset[int]:
    """Of `1,8,64..256`."""
    words = [word.strip() for word in (given or "").split(",") if word.strip()]
    value: list[int | str] = [int(word) if word.isascii() and word.isdigit() else word for word in words]
    found = [token for token, _ in parse_tokens(value)]
    wrong = next((token for token in found if isinstance(token, str)), "")
    if wrong:
        raise click.BadParameter(f"{wrong}: give buckets like 1,8,64..256")
    return frozenset(token for token in found if isinstance(token, int))


@click.command("tune", short_help="Search the portable kernels' candidates, and keep the fastest that is proven.")
@click.argument("names", nargs=-1, required=True, metavar="SHAPE_OR_CSV...")
@click.option("--tokens", callback=_buckets, metavar="LIST", help="Only these declared buckets: 1,8,64..256.")
@click.option("--budget", type=click.FloatRange(min=0), metavar="SECONDS", help="Time for all; a second run goes on.")
@click.option("--space", "file", type=_FILE, help="The candidates to try, instead of the space that ships.")
@click.option("--gpu", "kinds", multiple=True, metavar="GFX/CU", help="Only for this kind of GPU, such as sm_90/132.")
@click.option("--top", type=click.IntRange(1, 100), default=3, show_default=True, help="Candidates a bucket to verify.")
@click.option("--source", "note", help="What the commit message says of the times; by default GPU and versions.")
@click.option("--fresh", is_flag=True, help="Screen and judge again what earlier runs found.")
@click.option("--limit", type=click.FloatRange(min=1), default=_LIMIT_S, show_default=True, help="Seconds a job.")
@sign_option
@root_option
@format_option
def command(
    names: tuple[str, ...],
    tokens: frozenset[int],
    budget: float | None,
    file: Path | None,
    kinds: tuple[str, ...],
    top: int,
    note: str | None,
    fresh: bool,
    limit: float,
    key: Path | None,
    root: Path,
    style: str,
) -> int:
    """Tune declared buckets of the portable Triton kernels on the GPUs of this machine, and adopt what is faster.

    SHAPE_OR_CSV is a deployment such as glm-5.2/tp4-triton, or an untuned or tuned table of generated/triton. Of each
    bucket the candidates of a space are timed at a first look, and the best judged as `verify` judges rows, under every
    declared use. The fastest that is proven and faster than what runs without a row is written with its records; where
    none is, nothing is written, and the line for `left_out` is shown. Ctrl-C loses nothing that is finished.
    """
    allowed = Budget(budget)
    declarations, findings = load_declarations(root)
    space, wrong = read_space(file)
    local = local_gpus()
    here = [gpu for gpu in local.gpus if not kinds or gpu.kind in kinds]
    targets, missing = targets_of(declarations, names, tokens, (gpu.kind for gpu in here))
    findings += [*wrong, *missing]
    if space is None or has_errors(findings):
        return show(findings, style, "nothing tuned")
    site, pool = Site(PORTABLE, LocalGpus(tuple(here))), local_pool(here, limit)
    store = RecordStore(root / CACHE)
    bench = Bench(declarations, site, MergedTables(), pool, store, shipped_rows(root), fresh)
    tuner = Tuner(bench, space, Memory(root / "build" / "tune", fresh), allowed, top, progress)
    keeping = Keeping(root, note or _note(here), bench, key, style)
    results: list[Result] = []
    for _, buckets in groupby(targets, key=lambda target: target.layer):
        done = tuner.tune(list(buckets))
        for row in (result.stands for result in done if result.stands):
            keeping.tell(f"{row.key}\n  stands: {row.us:g} µs, {row.kernel1} + {row.kernel2}")
        findings += keeping.keep([result.choice for result in done if result.choice])
        results += done
    findings += _findings_of(results)
    return show(findings, style, keeping.written)


def _note(gpus: Sequence[Gpu]) -> str:
    """What the times were measured on and with."""
    boards = ", ".join(dict.fromkeys(gpu.board for gpu in gpus))
    versions = versions_in_use()
    triton = next((gpu.triton for gpu in gpus), "")
    return f"moeshapes tune, {boards}, torch {versions['torch']}, Triton {triton}, moeshapes {versions['moeshapes']}"


def _findings_of(results: Sequence[Result]) -> Iterator[Finding]:
    """Of the buckets for which nothing is written."""
    for result in results:
        if result.refused:
            yield Finding(NOT_TUNABLE, result.target.declared[0].place, f"{result.target.key}: {result.refused}")
    beaten = [result.target for result in results if result.choice and not result.choice.may_be_written]
    for row, tokens in _by_block(beaten):
        what = flow({"tokens": tokens_value(tokens), "reason": "no candidate beat the default"})
        message = f"{row.use.id}: no candidate is kept at {flow(tokens)} tokens"
        yield Finding(NOTHING_FASTER, row.place, message, f"Move them from `tokens` to `left_out`: `- {what}`")
    left = [result.target for result in results if not (result.choice or result.refused or result.stands)]
    for row, tokens in _by_block(left):
        yield Finding(BUDGET_SPENT, row.place, f"{row.use.id}: {flow(tokens)} tokens are left")


def _by_block(targets: Iterable[Target]) -> Iterator[tuple[DeclaredRow, list[int]]]:
    """The buckets of each declared block, at the first one's place."""
    found: dict[tuple[str, str], tuple[DeclaredRow, list[int]]] = {}
    for target in targets:
        for row in target.declared:
            _, tokens = found.setdefault((row.place.file, row.use.id), (row, []))
            tokens.append(row.row.token)
    yield from found.values()
