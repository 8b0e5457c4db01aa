"""`moeshapes explain`: what a call of fused_moe finds in the tuned tables and what it launches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from moeshapes.cli import FINDINGS, NOTHING_FOUND
from moeshapes.commands.options import aiter_of_option, optional_tables_root_option
from moeshapes.commands.tuned import TunedTables, read_tuned, tuned_option
from moeshapes.dispatch import VARIABLES
from moeshapes.explain import Explanation, explain
from moeshapes.explain_portable import PortableExplanation, explain_portable
from moeshapes.findings import json_text, printable
from moeshapes.questions import (
    Circumstances,
    NotAnswerableError,
    Question,
    ask_about_key,
    ask_about_model,
    is_key_or_log_line,
)
from moeshapes.report.evidence import Evidence
from moeshapes.root import is_shapes_root
from moeshapes.spelling import nearest

Answer = Explanation | PortableExplanation

_WHOLE_NUMBERS = (*VARIABLES, "AITER_BYPASS_TUNE_CONFIG", "AITER_KSPLIT", "AITER_USE_NT")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_KNOWN_VARIABLES = (*_WHOLE_NUMBERS, "AITER_FLYDSL_FORCE", "AITER_FLYDSL_FORCE_REDUCE", "AITER_ONLINE_TUNE")


def _environment(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    env: dict[str, str] = {}
    for setting in given:
        name, sign, value = setting.partition("=")
        if not sign:
            raise click.BadParameter(f"`{setting}` is not VARIABLE=VALUE")
        if name not in _KNOWN_VARIABLES:
            close = nearest(name, _KNOWN_VARIABLES)
            hint = f"did you mean `{close}`?" if close else f"it knows {', '.join(_KNOWN_VARIABLES)}"
            raise click.BadParameter(f"explain knows no effect of `{name}`: {hint}")
        if name in _WHOLE_NUMBERS and not _WHOLE_NUMBER.fullmatch(value):
            raise click.BadParameter(f"AITER reads {name} as a whole number, not `{value}`")
        env[name] = value
    return env


@click.command("explain")
@click.argument("subject", metavar="MODEL|KEY|LOG-LINE")
@click.option("--tp", type=click.IntRange(1), help="The model's tensor parallelism; without it, all that are declared.")
@click.option("--tokens", type=click.IntRange(0, 1 << 20), multiple=True, help="Tokens of the call; may be repeated.")
@tuned_option
@optional_tables_root_option
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--ep", "expert_mask", is_flag=True, help="Expert parallelism: the call passes an expert mask.")
@click.option("--topk-width", type=click.IntRange(1), help="Width of topk_ids, with --ep its masked slot included.")
@click.option("--gate-mode", type=click.Choice(["separated", "interleave"]), help="How gate and up are laid out.")
@click.option("--bias", is_flag=True, help="The call passes biases.")
@click.option("--unshuffled", is_flag=True, help="The weights have lost AITER's is_shuffled mark.")
@click.option("--without-flydsl", is_flag=True, help="FlyDSL cannot be imported.")
@click.option("--env", multiple=True, metavar="VARIABLE=VALUE", callback=_environment, help="May be repeated.")
@aiter_of_option
def command(
    subject: str,
    tp: int | None,
    tokens: tuple[int, ...],
    tuned: Path | None,
    root: Path | None,
    style: str,
    **given: Any,
) -> int:
    """Say which row a call finds, which kernels run, and by which rules.

    MODEL is declared in models/ and shapes/, or names a shape file (glm-5.2/tp4), and needs --tokens. KEY is cells with
    commas as AITER logs them, or a key as it is printed here; LOG-LINE is a line of its log. The exit status is 1 where
    a crash or wrong results are to be expected. Deployments of the portable Triton kernels, and keys of GPUs that AITER
    does not run on, are looked up in their own tables, whatever the options that change AITER's choice.
    """
    tables = read_tuned(tuned, root, given["version"])
    try:
        questions = _questions(subject, tp, tokens, root, Circumstances(**given))
    except NotAnswerableError as reason:
        raise click.ClickException(printable(str(reason))) from reason
    evidence = Evidence(root) if root and is_shapes_root(root) else None
    answers = list(_answers(questions, tables, evidence))
    if not answers:
        kind = "portable Triton kernels" if questions[0].is_portable else "AITER"
        raise click.UsageError(f"{tuned or root} holds no tables of {kind}, and no others are looked up for this")
    click.echo(json_text([answer.as_json() for answer in answers], indent=2) if style == "json" else _text(answers))
    return FINDINGS if any(answer.has_errors for answer in answers) else NOTHING_FOUND


def _answers(questions: Iterable[Question], tables: TunedTables, evidence: Evidence | None) -> Iterator[Answer]:
    """The answers by the tables of each one's backend; none of a backend that has no tables there."""
    for question in questions:
        table = tables.of(question.is_portable)
        if table is None:
            continue
        if question.is_portable:
            yield explain_portable(question.subject, question.call, table, question.deployment, evidence)
        else:
            yield explain(question.subject, question.call, table, question.logged)


def _questions(
    subject: str, tp: int | None, tokens: Sequence[int], root: Path | None, circumstances: Circumstances
) -> list[Question]:
    if is_key_or_log_line(subject):
        return ask_about_key(subject, tokens, circumstances)
    if not tokens:
        raise click.UsageError("say how many tokens the call has: --tokens N")
    if root is None or not is_shapes_root(root):
        raise click.UsageError("no models/ and shapes/ here or above: run it inside the repository, or give --root DIR")
    from moeshapes.repository import load_declarations  # a key needs no declarations: answer it without the schemas

    declarations, _ = load_declarations(root)
    return ask_about_model(subject, tp, tokens, circumstances, declarations)


def _text(answers: Sequence[Answer]) -> str:
    return "\n\n".join("\n".join(_lines(answer)) for answer in answers)


def _lines(answer: Answer) -> Iterator[str]:
    tokens = answer.call.tokens
    yield printable(f"{answer.subject}, {tokens} token{'' if tokens == 1 else 's'}")
    for step in answer.steps:
        for number, line in enumerate(step.lines):
            yield printable(f"  {'' if number else step.name:<11}  {line}")
