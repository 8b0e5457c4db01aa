"""Headers of tables: columns that are absent, doubled or misspelt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from moeshapes.cell import DEFAULT_OF_ABSENT_COLUMN, KNOWN_COLUMNS, is_formula, offset
from moeshapes.findings import Finding, Place
from moeshapes.rule import Rule, Severity
from moeshapes.spelling import named_within, nearest

BAD_COLUMNS = Rule(
    "MOE105",
    "bad-columns",
    Severity.ERROR,
    what="A header lacks a column, misspells one or has one twice.",
    why="AITER fills an absent column with 0 when it merges tables, so the rows would silently mean something else.",
    fix="Correct the header; no row of the file is read until then.",
)


def column_faults(header: Sequence[str], required: Sequence[str], tuned: bool, place: Place) -> Iterator[Finding]:
    """Columns that are absent, doubled, unnamed or misspelt. Columns not known today are right."""
    doubled = [column for column, count in Counter(header).items() if count > 1 or not column]
    for column in doubled:
        at = Place(place.file, place.line, offset(header, header.index(column)))
        problem = f"column `{column}` stands {header.count(column)} times" if column else "a column has no name"
        yield Finding(BAD_COLUMNS, at, problem)
    for column in filter(is_formula, header):
        at = Place(place.file, place.line, offset(header, header.index(column)))
        yield Finding(BAD_COLUMNS, at, f"column `{column}` begins as a formula does, which a spreadsheet would run")
    absent = [column for column in required if column not in header]
    optional = [column for column in (DEFAULT_OF_ABSENT_COLUMN if tuned else ()) if column not in header]
    unknown = [column for column in header if column not in KNOWN_COLUMNS]
    guesses = {column: nearest(column, absent + optional) or named_within(column, absent) for column in unknown}
    misspelt = {column: meant for column, meant in guesses.items() if meant}
    for column, meant in misspelt.items():
        at = Place(place.file, place.line, offset(header, header.index(column)))
        yield Finding(
            BAD_COLUMNS, at, f"unknown column `{column}`: did you mean `{meant}`?", f"Rename it to `{meant}`."
        )
    for column in absent:
        if column not in misspelt.values():
            yield Finding(BAD_COLUMNS, place, f"column `{column}` is missing", f"Add `{column}`.")
