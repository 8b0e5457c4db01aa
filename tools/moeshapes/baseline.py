"""Baselines: the findings that a tree had when it adopted lint. Only what is new since then is reported.

A finding is known by its rule, its file and the text of its line, so that lines may move; a row that changes is new.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from moeshapes.files import write_where_told
from moeshapes.findings import Finding, Place
from moeshapes.rule import Rule, Severity
from moeshapes.table import Table

BAD_BASELINE = Rule(
    "MOE143", "bad-baseline", Severity.ERROR,
    what="A baseline file is not one that `lint --write-baseline` wrote.",
    why="No finding can be told to be old.",
    fix="Write it again with `lint --write-baseline`; in a merge conflict, keep the lines of both sides.",
)  # fmt: skip

_VERSION = 1
_FIELDS = {"rule": str, "file": str, "line": str, "count": int}


@dataclass(frozen=True, order=True)
class Fingerprint:
    """A finding without its line number. `line` digests the line's text, or the message where there is none."""

    rule: str
    file: str
    line: str


Baseline = Mapping[Fingerprint, int]
"""How many findings of each fingerprint are known."""


def new_findings(findings: Iterable[Finding], tables: Iterable[Table], baseline: Baseline) -> list[Finding]:
    """The findings that are not in the baseline; of a fingerprint, those beyond the number that it has."""
    texts = _texts(tables)
    left = Counter(baseline)
    new = []
    for finding in findings:
        fingerprint = _fingerprint(finding, texts)
        if left[fingerprint] > 0:
            left[fingerprint] -= 1
        else:
            new.append(finding)
    return new


def write_baseline(path: Path, findings: Iterable[Finding], tables: Iterable[Table]) -> None:
    """Writes the findings as a baseline, one on a line so that git merges it. Raises OSError."""
    texts = _texts(tables)
    counts = Counter(_fingerprint(finding, texts) for finding in findings)
    lines = [
        json.dumps({"rule": f.rule, "file": f.file, "line": f.line, "count": count})
        for f, count in sorted(counts.items())
    ]
    body = ",\n".join(lines)
    write_where_told(path, f'{{"version": {_VERSION}, "findings": [\n{body}\n]}}\n'.encode())


def read_baseline(path: Path) -> tuple[Baseline, list[Finding]]:
    """The baseline in a file, or what is wrong with it. Raises OSError where it cannot be opened."""
    name = str(path)
    try:
        value = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        return {}, [Finding(BAD_BASELINE, Place(name, error.lineno, error.colno), f"not JSON: {error.msg}")]
    except (ValueError, RecursionError):  # not UTF-8, or a number of more digits than Python reads
        return {}, [Finding(BAD_BASELINE, Place(name), "not a text file of JSON")]
    entries = value.get("findings") if isinstance(value, dict) and value.get("version") == _VERSION else None
    if not isinstance(entries, list) or not all(_is_entry(entry) for entry in entries):
        return {}, [Finding(BAD_BASELINE, Place(name), f"not a baseline of version {_VERSION}")]
    counts: Counter[Fingerprint] = Counter()
    for entry in entries:
        counts[Fingerprint(entry["rule"], entry["file"], entry["line"])] += entry["count"]
    return counts, []


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and all(type(entry.get(name)) is kind for name, kind in _FIELDS.items())


def _texts(tables: Iterable[Table]) -> Mapping[tuple[str, int], bytes]:
    return {(table.name, line.number): line.raw for table in tables for line in table.lines}


def _fingerprint(finding: Finding, texts: Mapping[tuple[str, int], bytes]) -> Fingerprint:
    place = finding.place
    text = texts.get((place.file, place.line), finding.message.encode(errors="surrogatepass"))
    return Fingerprint(finding.rule.id, place.file, hashlib.sha256(text.rstrip()).hexdigest()[:16])
