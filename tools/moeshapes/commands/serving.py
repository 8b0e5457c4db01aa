"""`moeshapes report serving`: throughput and time a token with and without rows, and what the MoE takes of a step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moeshapes.commands.extra import saying_what_to_install
from moeshapes.commands.outcome import counted, show
from moeshapes.files import write_where_told
from moeshapes.findings import FORMATS, Finding

if TYPE_CHECKING:
    from moeshapes.report.serving import Arm, Pair
    from moeshapes.report.serving_view import Reference
    from moeshapes.report.steps import Steps

_REFERENCE = re.compile(r"([^=@]+)(?:@(\d{1,9})/(\d{1,9})/(\d{1,9}))?=(\d{1,12}(?:\.\d{1,6})?)", re.ASCII)


@click.command("serving", short_help="Compare two arms of a serving benchmark.")
@click.option("--arm", "arms", multiple=True, metavar="NAME=FILE", help="Results of an arm, in the order of rounds.")
@click.option("--gpus", type=click.IntRange(min=1), help="GPUs of a server; else as SGLang's own results tell.")
@click.option("--reference", "references", multiple=True, metavar="NAME[@IN/OUT/CONC]=TOKENS/S/GPU")
@click.option("--may-differ", multiple=True, metavar="SETTING", help="A setting that the arms are to differ in.")
@click.option("--trace", "traces", multiple=True, metavar="NAME=FILE", help="A PyTorch profiler trace of an arm.")
@click.option("--kernels", metavar="REGEX", help="Which kernels are the MoE's; else those of AITER, SGLang and vLLM.")
@click.option("--step-gap", type=float, metavar="US", help="Tell steps apart by idle times of at least so long.")
@click.option("--format", "style", type=click.Choice(("text", "md")), default="text", show_default=True)
@click.option("--findings", "shown", type=click.Choice(FORMATS), default="text", help="How findings are printed.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write there instead of to stdout.")
def command(
    arms: Sequence[str],
    gpus: int | None,
    references: Sequence[str],
    may_differ: Sequence[str],
    traces: Sequence[str],
    kernels: str | None,
    step_gap: float | None,
    style: str,
    shown: str,
    output: Path | None,
) -> int:
    """Compare two arms of `sglang.bench_serving` or `vllm bench serve` over interleaved rounds.

    Give each arm's files with --arm NAME=FILE, the baseline's first; FILE may be a pattern. Rounds of a shape are
    compared in pairs. --trace adds how long the MoE takes in a decode step.
    """
    with saying_what_to_install("report"):
        from moeshapes.report.serving import gpus_of, pair_up
        from moeshapes.report.serving_view import Serving, as_markdown, as_text

    if not arms and not traces:
        raise click.UsageError("give two arms: --arm before=before.jsonl --arm after=after.jsonl")
    found: list[Finding] = []
    steps = dict(_steps(traces, _symbols(kernels), step_gap, found))
    both = _arms(arms, found) if arms else None
    pairs, wrong = pair_up(*both, may_differ) if both else ([], [])
    count = gpus or gpus_of(pairs)
    if count is None:
        raise click.UsageError("the results do not tell how many GPUs a server has: say it with --gpus")
    names = tuple(arm.name for arm in both) if both else tuple(steps)
    serving = Serving(names, tuple(pairs), count, tuple(_references(references, pairs)), steps)
    _write(as_markdown(serving) if style == "md" else as_text(serving), output)
    return show([*found, *wrong], shown, f"{counted(len(pairs), 'shape')} compared")


def _named(given: Sequence[str], option: str) -> Iterator[tuple[str, list[Path]]]:
    """The name of each arm and its files: those that a pattern matches, in the order of their names."""
    for text in given:
        name, _, pattern = text.partition("=")
        if not (name and pattern):
            raise click.BadParameter(f"`{text}` is not NAME=FILE", param_hint=option)
        files = [Path(pattern)] if Path(pattern).is_file() else sorted(map(Path, glob(pattern)))
        if not files:
            raise click.BadParameter(f"there is no file {pattern}", param_hint=option)
        yield name, files


def _arms(given: Sequence[str], found: list[Finding]) -> tuple[Arm, Arm]:
    from moeshapes.report.serving import Arm
    from moeshapes.report.serving_result import Result, read_results

    results: dict[str, list[Result]] = {}
    for name, files in _named(given, "--arm"):
        for path in files:
            read, wrong = read_results(path)
            results.setdefault(name, []).extend(read)
            found += wrong
    if len(results) != 2:
        names = ", ".join(results)
        raise click.BadParameter(f"two arms are compared, not {len(results)}: {names}", param_hint="--arm")
    one, other = (Arm(name, tuple(rounds)) for name, rounds in results.items())
    return one, other


def _steps(
    given: Sequence[str], symbols: str, gap_us: float | None, found: list[Finding]
) -> Iterator[tuple[str, Steps]]:
    from moeshapes.report.steps import steps_of
    from moeshapes.report.trace_file import read_trace

    seen: set[str] = set()
    for name, files in _named(given, "--trace"):
        if name in seen or len(files) > 1:
            raise click.BadParameter(f"one trace an arm: `{name}` has more", param_hint="--trace")
        seen.add(name)
        trace = read_trace(files[0])
        read = trace if isinstance(trace, Finding) else steps_of(trace, symbols, gap_us)
        if isinstance(read, Finding):
            found.append(read)
        else:
            yield name, read


def _symbols(given: str | None) -> str:
    from moeshapes.report.steps import MOE_SYMBOLS

    try:
        re.compile(given or "")
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}", param_hint="--kernels") from error
    return given or MOE_SYMBOLS


def _references(given: Sequence[str], pairs: Sequence[Pair]) -> Iterator[Reference]:
    from moeshapes.report.serving_view import Reference

    for text in given:
        match = _REFERENCE.fullmatch(text)
        if match is None or float(match[5]) == 0:
            example = "MI355X=1234.5, or MI355X@1024/512/16=1234.5 where there are several shapes"
            raise click.BadParameter(f"`{text}` is not like {example}", param_hint="--reference")
        lengths = (int(match[2]), int(match[3]), int(match[4])) if match[2] else None
        if lengths is None and len(pairs) > 1:
            raise click.BadParameter(
                f"{len(pairs)} shapes: say which with NAME@IN/OUT/CONC=…", param_hint="--reference"
            )
        if lengths and all(pair.lengths != lengths for pair in pairs):
            raise click.BadParameter(f"no shape that was compared is that of `{text}`", param_hint="--reference")
        yield Reference(match[1], float(match[5]), lengths)


def _write(text: str, output: Path | None) -> None:
    if output:
        write_where_told(output, text.encode())
    else:
        click.echo(text, nl=False)
