"""A page as large as a repository of three thousand rows makes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from moeshapes.claim import judged_uses
from moeshapes.coverage import Coverage, cover
from moeshapes.deployment import deployments
from moeshapes.dispatch import LARGEST_STEP
from moeshapes.expand import Declarations
from moeshapes.findings import Place
from moeshapes.report.proof import Proof
from moeshapes.repository import load_declarations
from moeshapes.row import Key, TunedRow
from moeshapes.runtime.merged import MergedTable
from report_samples import record, speed
from table_text import row

FOLDER = "generated/aiter/configs/model_configs"
_BUCKETS = tuple(1 << power for power in range(LARGEST_STEP.bit_length()))
_TEMPLATE = row()


def large_page(root: Path, count: int) -> tuple[list[Proof], list[Coverage]]:
    """So many rows of what the repository declares, and of shapes near it; most of them with a record.

    Every third row was timed, every fourth has no record, every fiftieth failed.
    """
    declarations, _ = load_declarations(root)
    rows = _rows(declarations, count)
    table = MergedTable(tuple(rows))
    known = [each for each in deployments(declarations) if not each.declared.is_portable]
    return list(_proofs(rows, declarations)), cover(known, table)


def _rows(declarations: Declarations, count: int) -> list[TunedRow]:
    declared = {key: None for each in declarations.rows if not each.is_portable for key in each.keys}
    found: dict[Key, TunedRow] = {}
    wider = 0
    while len(found) < count:
        for key in declared:
            for token in _BUCKETS:
                shape = replace(key.shape, token=token, inter_dim=key.shape.inter_dim + 128 * wider)
                at = replace(key, shape=shape)
                found.setdefault(at, _row(at, len(found)))
        wider += 1
    return list(found.values())[:count]


def _row(key: Key, number: int) -> TunedRow:
    file = f"{FOLDER}/table{number // 200}_tuned_fmoe.csv"
    us = 20.0 + key.shape.token**0.8 + number % 7
    return replace(_TEMPLATE, key=key, us=us, us1=0.6 * us, us2=0.4 * us, place=Place(file, 2 + number % 200))


def _proofs(rows: list[TunedRow], declarations: Declarations) -> Iterator[Proof]:
    for number, each in enumerate(rows):
        for use in judged_uses(each, declarations):
            ratio = 0.85 + 0.01 * (number % 25)
            timed = (
                speed(ratio, each.us * 0.97, replaced=1.01 if number % 6 == 0 else None) if number % 3 == 0 else None
            )
            bad = {"bad_values": 4, "over_limit": "inf"} if number % 50 == 49 else {}
            found = record(each, use, timed, **bad) if number % 4 != 3 else None
            yield Proof(each, use, bool(declarations.uses_of(each)), found)
