"""Lint errors that are new since a base: of rows that changed, of declarations that judge old rows otherwise, of text.

Rules whose findings are errors judge a row by itself: what a row that is as it was is found guilty of depends on
nothing but what is declared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

from moeshapes.expand import Declarations
from moeshapes.family import Family
from moeshapes.findings import Finding
from moeshapes.gate.tree import WorkingTree
from moeshapes.row import TunedRow
from moeshapes.row_diff import RowDiff
from moeshapes.rule import Severity
from moeshapes.rules import lint_rows
from moeshapes.rules.portable import misplacements
from moeshapes.table import Table

_T = TypeVar("_T", bound=Hashable)


def errors_of_changed_rows(tree: WorkingTree, diff: RowDiff) -> list[Finding]:
    """What the rules say of rows that are not as they were, be it in a time."""
    changed = [*diff.to_prove, *(change.after for change in diff.retimed)]
    return _errors(changed, tree.declarations, tree.is_sound)


def errors_of_declarations(tree: WorkingTree, diff: RowDiff, declared: Declarations, sound: bool) -> list[Finding]:
    """What the rules say of rows that are as they were, and did not say when `declared` was, soundly or not.

    They can only of rows of which something else is declared. Rows that nothing ever declared stay as they are: a tree
    may declare its first shapes.
    """
    changed = {*diff.to_prove, *(change.after for change in diff.retimed)}
    suspects = [
        row for row in tree.rows if tree.declarations.of_row(row) != declared.of_row(row) and row not in changed
    ]
    known = Counter((old.rule, old.place) for old in _errors(suspects, declared, sound))
    now = _errors(suspects, tree.declarations, tree.is_sound)
    return list(_beyond(known, ((error, (error.rule, error.place)) for error in now)))


def errors_of_text(now: Mapping[str, Family], before: Mapping[str, Family]) -> Iterator[Finding]:
    """What is wrong with the text of tables and was not: an old line may have moved, to another file as well."""
    return _beyond(Counter(text for _, text in _text_errors(before)), _text_errors(now))


def _beyond(known: Counter[_T], found: Iterable[tuple[Finding, _T]]) -> Iterator[Finding]:
    """The findings whose mark was not known as often."""
    left = Counter(known)
    for finding, mark in found:
        if left[mark] > 0:
            left[mark] -= 1
        else:
            yield finding


def _errors(rows: Iterable[TunedRow], declared: Declarations, sound: bool) -> list[Finding]:
    return [found for found in lint_rows(rows, declared, sound) if found.rule.severity is Severity.ERROR]


def _text_errors(families: Mapping[str, Family]) -> Iterator[tuple[Finding, tuple[str, bytes]]]:
    """The errors of tables, each with its rule and the text of its line, or the message where it is of no line.

    That a table stands in a folder that it is not for is of its path. What keeps all rows of a table from being read is
    of its whole content: of rows that are new there nothing else would be said.
    """
    tables = list(chain.from_iterable(family.tuned.values() for family in families.values()))
    yield from (
        (finding, (finding.rule.id, finding.place.file.encode(errors="surrogatepass")))
        for finding in misplacements(tables)
    )
    for table in tables:
        errors = [finding for finding in table.findings if finding.rule.severity is Severity.ERROR]
        lines = _texts(table) if errors else {}
        unread = table.render() if lines and not any(line.sound for line in table.lines) else b""
        for finding in errors:
            message = finding.message.encode(errors="surrogatepass")  # it may name a file whose name is not UTF-8
            yield finding, (finding.rule.id, lines.get(finding.place.line, unread or message))


def _texts(table: Table) -> Mapping[int, bytes]:
    return {line.number: line.raw.rstrip() for line in table.lines}
