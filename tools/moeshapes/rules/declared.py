"""Rules about tuned rows and declared shapes that do not meet. Only where a repository declares shapes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from moeshapes.findings import Finding
from moeshapes.row import Key, TunedRow
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Tables, check_tables
from moeshapes.yaml_text import listed_tokens

if TYPE_CHECKING:
    from moeshapes.expand import DeclaredRow

UNDECLARED = Rule(
    "MOE133", "undeclared-row", Severity.ERROR,
    what="No shape file declares the key of a tuned row.",
    why="Nothing says who hits the row and how, so it cannot be verified.",
    fix="Declare the shape, its GPU and its token bucket in shapes/.",
)  # fmt: skip
UNSERVED = Rule(
    "MOE177", "unserved-shape", Severity.INFO,
    what="A CSV has tuned rows, but none for some buckets that a shape declares for it.",
    why="These calls run the default path although the shape says that they are to be tuned.",
    fix="Tune the buckets, or list them under `left_out` with the reason.",
)  # fmt: skip


_OWN_TABLES = "generated/"
"""Tables of other trees may be linted from within a repository: nobody declares their rows here."""


def undeclared(row: TunedRow) -> str:
    """That no shape declares a row, in words."""
    return f"no shape declares {row.key}" + (" for the portable kernels" if row.is_portable else "")


@check_tables
def undeclared_rows(tables: Tables) -> Iterator[Finding]:
    if tables.declarations and tables.declarations.rows:
        for row in tables.rows:
            if row.place.file.startswith(_OWN_TABLES) and not tables.declarations.of_row(row):
                yield Finding(UNDECLARED, row.place, undeclared(row))


@check_tables
def unserved_shapes(tables: Tables) -> Iterator[Finding]:
    """One finding a use and GPU. A CSV without any tuned row was never tuned: `coverage` lists it."""
    if tables.declarations is None:
        return
    from moeshapes.repository import csv_path, tuned_name

    served = {(row.key, row.is_portable) for row in tables.rows}
    files = {row.place.file for row in tables.rows}
    missing: dict[tuple[str, str, str, int], list[tuple[Key, DeclaredRow]]] = defaultdict(list)
    for declared in tables.declarations.rows:
        for key in declared.keys if csv_path(tuned_name(declared.csv)) in files else ():
            if (key, declared.is_portable) not in served:
                missing[declared.csv, declared.use.id, key.gfx, key.cu_num].append((key, declared))
    for (csv, use, gfx, cu_num), rows in missing.items():
        buckets = listed_tokens({key.shape.token for key, _ in rows})
        message = f"{tuned_name(csv)} has no row of `{use}` on {gfx}/{cu_num} for {buckets} tokens"
        yield Finding(UNSERVED, min(declared.place for _, declared in rows), message)
