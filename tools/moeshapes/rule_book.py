"""The rule book: every rule there is, with examples and what it finds in AITER's published tables."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from moeshapes.document import parse_document
from moeshapes.rule import RULES, Rule

MODULES = (
    "adopt",
    "baseline",
    "branches",
    "checkpoint.fault",
    "expand",
    "export",
    "gate.run",
    "generate",
    "importer",
    "keys",
    "lint",
    "parity",
    "report.serving_rules",
    "select.faults",
    "shape_draft",
    "surplus",
    "tune.faults",
    "waiver",
)
"""Modules that, with what they import, define every rule. A test compares them with the package."""
PATH = "generated/RULES.md"
"""Where the page stands below the root of a repository."""

_BOOK = "rules/book.yaml"


@dataclass(frozen=True)
class Example:
    """Rows, each as the cells in which it differs from the book's row; or, where a rule is not about rows, text."""

    rows: tuple[Mapping[str, str], ...]
    text: str

    def __str__(self) -> str:
        if not self.rows:
            return f"`{self.text}`" if "`" not in self.text else self.text
        rows = [", ".join(f"{column} `{cell}`" for column, cell in row.items()) for row in self.rows]
        return "; and ".join(row or "the row as it stands" for row in rows)


@dataclass(frozen=True)
class Entry:
    """What the book has about a rule. `published` counts its findings in AITER's tables, None where it judges none."""

    bad: Example
    good: Example
    published: int | None
    because: str


@dataclass(frozen=True)
class Book:
    """The row that examples differ from, the AITER commit that findings were counted in, and the entries by rule id."""

    row: Mapping[str, str]
    aiter: str
    entries: Mapping[str, Entry]


def all_rules() -> Mapping[str, Rule]:
    """Every rule by its id, in the order of ids."""
    for name in MODULES:
        importlib.import_module(f"moeshapes.{name}")
    return dict(sorted(RULES.items()))


@cache
def read_book() -> Book:
    """The book as shipped with the package."""
    document, findings = parse_document((resources.files("moeshapes") / _BOOK).read_bytes(), _BOOK)
    if document is None or findings:
        raise ValueError(f"{_BOOK} is damaged: {findings}")
    value: Any = document.value
    entries = {rule: _entry(facts) for rule, facts in value["rules"].items()}
    return Book(_cells(value["row"]), value["aiter"], entries)


def _entry(facts: Mapping[str, Any]) -> Entry:
    return Entry(_example(facts["bad"]), _example(facts["good"]), facts.get("published"), facts.get("because", ""))


def _example(value: str | list[Mapping[str, object]]) -> Example:
    return Example((), value) if isinstance(value, str) else Example(tuple(_cells(row) for row in value), "")


def _cells(row: Mapping[str, object]) -> Mapping[str, str]:
    return {column: str(cell) for column, cell in row.items()}


def render_rules() -> bytes:
    """The page that documents every rule: a table of what lint finds in AITER's tables, then a section a rule."""
    rules, book = all_rules(), read_book()
    lines = [*_introduction(book), *_counts(rules, book)]
    for rule in rules.values():
        lines += _section(rule, book.entries.get(rule.id))
    return ("\n".join(lines) + "\n").encode()


def _introduction(book: Book) -> Iterator[str]:
    yield "<!-- Written by `moeshapes generate` from the rules and tools/moeshapes/rules/book.yaml. Do not edit. -->"
    yield "# Rules"
    yield ""
    yield "Errors are certain faults and change the exit status; warnings are likely ones; infos are worth knowing."
    yield "`waivers.yaml` accepts a finding for a time; a baseline (`moeshapes lint --write-baseline`) those of old."
    yield ""
    yield "Examples that name columns differ in these cells from one row:"
    yield ""
    yield "```"
    yield from (f"{column}={cell}" for column, cell in book.row.items())
    yield "```"
    yield ""


def _counts(rules: Mapping[str, Rule], book: Book) -> Iterator[str]:
    yield f"## What lint finds in the tuned fused-MoE tables of AITER {book.aiter}"
    yield ""
    yield "| rule | severity | findings | why |"
    yield "|---|---|---|---|"
    for rule in rules.values():
        entry = book.entries.get(rule.id)
        if entry and entry.published is not None:
            link = f"[{rule.id}](#{_anchor(rule)}) {rule.name}"
            yield f"| {link} | {rule.severity.value} | {entry.published} | {entry.because} |"
    yield ""


def _section(rule: Rule, entry: Entry | None) -> Iterator[str]:
    yield f"## {rule.id} {rule.name}"
    yield ""
    yield f"{rule.severity.value.capitalize()}. {rule.what}"
    yield ""
    yield f"- why: {rule.why}"
    yield f"- fix: {rule.fix}"
    if entry:
        yield f"- bad: {entry.bad}"
        yield f"- good: {entry.good}"
    yield ""


def _anchor(rule: Rule) -> str:
    """As GitHub makes a heading's anchor."""
    return f"{rule.id.lower()}-{rule.name}"
