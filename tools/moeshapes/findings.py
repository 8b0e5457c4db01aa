"""Findings: one wrong thing at one place, and how findings are shown to people and machines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from moeshapes.rule import Rule, Severity

FORMATS = ("text", "github", "json")


@dataclass(frozen=True, order=True)
class Place:
    """Where something stands: a file, and a 1-based line and column where they are known (0 = unknown)."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number]
        return ":".join([self.file, *numbers])


@dataclass(frozen=True)
class Finding:
    """One thing wrong. `remedy` says what to do about this very one; empty, it is the rule's general fix."""

    rule: Rule
    place: Place
    message: str
    remedy: str = ""

    @property
    def next_step(self) -> str:
        return self.remedy or self.rule.fix

    @property
    def sort_key(self) -> tuple[Place, str, str]:
        return (self.place, self.rule.id, self.message)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in the order of their places, each once."""
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.sort_key)


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.rule.severity is Severity.ERROR for finding in findings)


def count_by_severity(findings: Iterable[Finding]) -> str:
    """`2 errors, 1 warning`; `no findings` when there is none."""
    counts = Counter(finding.rule.severity for finding in findings)
    parts = [f"{counts[s]} {_plural(s, counts[s])}" for s in Severity if counts[s]]
    return ", ".join(parts) or "no findings"


def _plural(severity: Severity, count: int) -> str:
    return severity.value if count == 1 or severity is Severity.INFO else f"{severity.value}s"


def render(findings: Iterable[Finding], style: str) -> str:
    """All findings as `text`, `github` (workflow annotations) or `json` (an array); empty text for none but `[]`."""
    renderer = {"text": _render_text, "github": _render_github, "json": _render_json}[style]
    return renderer(ordered(findings))


_COMMAND = "##["
"""GitHub's runner obeys `##[command]` wherever it stands in a line that a step prints."""


def printable(text: str) -> str:
    """Text from outside, safe to print: control characters and commands of a workflow's runner shown as escapes."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text.replace(_COMMAND, "#\\x23[")


def _render_text(findings: list[Finding]) -> str:
    return "\n".join(
        f"{_line_start(str(f.place))}: {f.rule.severity.value} {f.rule.id} {printable(f.message)}\n"
        f"    fix: {printable(f.next_step)}"
        for f in findings
    )


def _line_start(text: str) -> str:
    """A file's name where a line begins: one that begins with `::` would make the line a workflow command."""
    shown = printable(text)
    return f"./{shown}" if shown.lstrip().startswith("::") else shown


_GITHUB_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def _render_github(findings: list[Finding]) -> str:
    return "\n".join(_github_line(finding) for finding in findings)


def _github_line(finding: Finding) -> str:
    place = finding.place
    properties = {"file": place.file, "line": place.line, "col": place.column, "title": finding.rule.id}
    joined = ",".join(f"{name}={_github_property(str(value))}" for name, value in properties.items() if value)
    message = printable(f"{finding.message}. Fix: {finding.next_step}").replace("%", "%25")
    return f"::{_GITHUB_LEVEL[finding.rule.severity]} {joined}::{message}"


def _github_property(text: str) -> str:
    escaped = printable(text).replace("%", "%25")
    return escaped.replace(":", "%3A").replace(",", "%2C")


def as_data(findings: Iterable[Finding]) -> list[dict[str, object]]:
    """All findings as `json` shows them, in a document of more than findings."""
    return [_as_json(finding) for finding in ordered(findings)]


def json_text(value: object, indent: int) -> str:
    """JSON that is safe to print, whatever text is in it. Its reader gets that text as it was."""
    return json.dumps(value, indent=indent).replace(_COMMAND, "#\\u0023[")


def _render_json(findings: list[Finding]) -> str:
    return json_text(as_data(findings), indent=2)


def _as_json(finding: Finding) -> dict[str, object]:
    return {
        "rule": finding.rule.id,
        "name": finding.rule.name,
        "severity": finding.rule.severity.value,
        "file": finding.place.file,
        "line": finding.place.line,
        "column": finding.place.column,
        "message": finding.message,
        "remedy": finding.next_step,
    }
