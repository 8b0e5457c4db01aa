"""Keeping what is chosen: told, adopted into the tables, and its records written and signed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from moeshapes.commands.outcome import counted
from moeshapes.commands.sign import sign_attested
from moeshapes.findings import Finding, has_errors, printable
from moeshapes.select.choice import Choice, account
from moeshapes.select.keep import attest, keep
from moeshapes.select.trial import Bench


@dataclass
class Keeping:
    """How choices are kept: with which source, whether unproven ones are, the key that signs records, and what is told
    in which style. `tables` and `records` are what was written so far.
    """

    root: Path
    note: str
    bench: Bench
    key: Path | None
    style: str
    allow_emulated: bool = False
    tables: set[Path] = field(default_factory=set)
    records: int = 0

    def keep(self, choices: Sequence[Choice]) -> list[Finding]:
        """Tells of the choices, adopts them and writes their records; what forbids it."""
        self.tell("\n".join(map(printable, account(choices))))
        adopted = keep(choices, self.note, self.root, self.bench, self.allow_emulated)
        for text in filter(None, (each.text for each in adopted)):
            self.tell(f"\n{text}\n")
        self.tables.update(path for each in adopted for path in each.written)
        objections = [found for each in adopted for found in each.findings]
        if not has_errors(objections):
            for record in attest(choices, self.root, self.bench):
                sign_attested(record, self.root, self.key)
                self.records += 1
        return objections

    def tell(self, text: str) -> None:
        """To people: beside the findings, which alone are on stdout where programs read them."""
        click.echo(text, err=self.style != "text")

    @property
    def written(self) -> str:
        """`1 table and 2 records written`."""
        return f"{counted(len(self.tables), 'table')} and {counted(self.records, 'record')} written"
