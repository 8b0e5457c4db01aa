"""Rendering: templates in which everything is escaped, and reports that fit where they are shown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from moeshapes.findings import printable
from moeshapes.report.links import Links
from moeshapes.report.markdown import cell, code, fit
from moeshapes.report.pull_request import PullRequest
from moeshapes.report.pull_request_view import measured, sections_of

STEP_SUMMARY = 1 << 20
"""Bytes that GITHUB_STEP_SUMMARY takes."""
SMALLEST = 16_384
"""Bytes that a report needs for its summary, its titles and how to repeat it."""
_SHORT = 12
_UNREAD_SHOWN = 20
_TABLES_NAMED = 20


def environment() -> Environment:
    """Templates of this package: what they are given is escaped unless it is markup already."""
    return Environment(
        loader=PackageLoader("moeshapes", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )


def render_pull_request(request: PullRequest, links: Links, limit: int = STEP_SUMMARY) -> str:
    """Markdown of at most `limit` bytes: first folded, then cut, with what was left out counted."""
    template = environment().get_template("pull_request.md.j2")
    unread = [(code(file), code(why)) for file, why in request.unread[:_UNREAD_SHOWN]]
    if len(request.unread) > _UNREAD_SHOWN:
        unread.append((cell("and others"), cell(f"{len(request.unread) - _UNREAD_SHOWN} more")))
    said = {
        "base": cell(request.diff.base[:_SHORT]),
        "head": cell(request.head[:_SHORT]),
        "edited": request.edited,
        "facts": [cell(fact) for fact in request.facts],
        "unread": unread,
        "measured": list(measured(request)),
        "commands": [Markup(command) for command in _commands(request)],
    }
    sections = sections_of(request, links)
    text = template.render(sections=sections, **said)
    excess = len(text.encode()) - limit
    return text if excess <= 0 else template.render(sections=fit(sections, excess), **said)


def _commands(request: PullRequest) -> Iterator[str]:
    """Shell lines in a fenced block, where only a fence could end it: names with one are left out."""
    base = request.diff.base[:_SHORT]
    tables = [shlex.quote(printable(table)) for table in request.tables if "`" not in table]
    if tables:
        yield "moeshapes verify " + (" ".join(tables) if len(tables) <= _TABLES_NAMED else f"--changed {base}")
    yield f"moeshapes report --base {base}"
