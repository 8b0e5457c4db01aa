"""What a command found: shown on the screen, and turned into its exit status."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from moeshapes.cli import FINDINGS, NOTHING_FOUND
from moeshapes.findings import Finding, count_by_severity, has_errors, ordered, render
from moeshapes.rule import Severity

_COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}
_A_SCREEN = 20
_SEVERITY_AND_RULE = re.compile(r"(?<=: )(error|warning|info) MOE\d+", re.ASCII)


def show(findings: Sequence[Finding], style: str, looked_at: str = "", aside: bool = False) -> int:
    """Prints the findings to stdout, and to stderr how many there are and among what, by rule where they are many.

    `aside` prints the findings to stderr too, where stdout has a text that is for something else. Returns the exit
    status: 1 where one of them is an error.
    """
    text = render(findings, style)
    if text:
        click.echo(_coloured(text) if style == "text" else text, err=aside)
    for line in _tally(ordered(findings)):
        click.echo(line, err=True)
    count = count_by_severity(ordered(findings))
    among = f", {looked_at}" if looked_at else ""
    click.echo(f"moeshapes {click.get_current_context().info_name}: {count}{among}", err=True)
    return FINDINGS if has_errors(findings) else NOTHING_FOUND


def _tally(findings: Sequence[Finding]) -> Iterator[str]:
    """How often each rule spoke, errors first, where the findings fill more than a screen."""
    counts = Counter(finding.rule for finding in findings)
    if len(findings) > _A_SCREEN and len(counts) > 1:
        severities = list(Severity)
        for rule, count in sorted(counts.items(), key=lambda item: (severities.index(item[0].severity), -item[1])):
            yield f"{count:6} {rule.severity.value:<7} {rule.id} {rule.name}"


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _coloured(text: str) -> str:
    # click drops the colours again where stdout is not a terminal.
    return _SEVERITY_AND_RULE.sub(lambda match: click.style(match[0], fg=_COLOURS[match[1]], bold=True), text)
