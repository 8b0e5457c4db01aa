"""The HTML page: one file that needs no network, and in which nothing from a repository is code."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib import resources
from typing import Any

from markupsafe import Markup

from moeshapes.coverage import Coverage, totals
from moeshapes.report.links import Links
from moeshapes.report.page_data import page_data
from moeshapes.report.proof import Proof
from moeshapes.report.render import environment

_SCRIPTS = ("page_facts.js", "page_charts.js", "page.js")
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
"""What could end a script element; in JSON they only stand in strings."""
_BEYOND_ASCII = re.compile("[^ -~]+")
"""Among it what ends a line of a script, what a terminal obeys, and what turns the order of text around."""


def render_page(proofs: Sequence[Proof], coverages: Sequence[Coverage], links: Links, made: str) -> str:
    """The page of all rows under all their uses, and of all deployments. `made` says of what and when it was made."""
    style, script = _source("page.css"), "".join(map(_source, _SCRIPTS))
    data = page_data(proofs, coverages) | {"link": links.with_commit}
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            title="Fused-MoE rows",
            summary="; ".join(_summary(proofs, coverages)) + ".",
            made=made,
            data=embedded(data),
            style=Markup(style),
            script=Markup(script),
            style_hash=_hash(style),
            script_hash=_hash(script),
        )
    )


def embedded(value: Any) -> Markup:
    """JSON that may stand in a script element. Halves of characters, as names of files may have, become `?`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    whole = text.encode(errors="replace").decode()
    return Markup(_BEYOND_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], whole).translate(_ESCAPES))


def _source(name: str) -> str:
    return (resources.files("moeshapes") / "report" / name).read_text("utf-8")


def _hash(text: str) -> str:
    """As a content security policy names what it allows."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _summary(proofs: Sequence[Proof], coverages: Sequence[Coverage]) -> Iterator[str]:
    rows = {proof.row for proof in proofs}
    yield f"{len(rows)} rows, {len(coverages)} deployments"
    statuses = Counter(proof.status for proof in proofs)
    yield ", ".join(f"{count} {status}" for status, count in statuses.most_common()) or "nothing to prove"
    buckets = ", ".join(f"{count} {status.value}" for status, count in totals(coverages).items() if count)
    yield f"buckets: {buckets or 'none'}"
