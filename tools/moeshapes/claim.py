"""Claims: that a tuned row is right under one use. A record of the claim's name is the evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from moeshapes.expand import Declarations
from moeshapes.record import RECORDS
from moeshapes.record_name import file_name, folder_name, is_shipped
from moeshapes.row import Key, TunedRow
from moeshapes.use import Use
from moeshapes.verify.plan import undeclared_use

LABEL, LABEL_GFX = "verify-gpu", "gfx950"
"""What a pull request is labelled with for verify-gpu.yml to judge its changed rows, and the GPU of its runner."""


@dataclass(frozen=True)
class Claim:
    """A tuned row that ships, and a use that it is judged under."""

    row: TunedRow
    use: Use

    @cached_property
    def file(self) -> str:
        """The name of the record's file; whoever hashes times three thousand rows wants it once."""
        return file_name(self.row.key, self.row.launch(), self.use)

    @property
    def path(self) -> str:
        """Where `verify` writes the record, below the root."""
        return f"{RECORDS}/{folder_name(self.row.place.file)}/{self.file}"

    def how_to_verify(self, since: str = "", again: bool = False) -> str:
        """The command that makes the record: of the table's rows, or of those that changed `since` a branch.

        `again` where a record is there that would be taken for it.
        """
        which = f"--changed {since}" if since else self.row.place.file
        return how_to_attest([self.row.key], f"{'--fresh ' if again else ''}{which}", by_label=bool(since))

    def among(self, records: Mapping[str, list[str]]) -> str | None:
        """The path of the record among those of a tree, by file name: it may stand in a table's former folder."""
        paths = records.get(self.file, [])
        return self.path if self.path in paths else next(iter(paths), None)


def how_to_attest(keys: Iterable[Key], arguments: str, by_label: bool) -> str:
    """How records of rows with those keys come about: by `verify` with the arguments, or by a workflow's label.

    `by_label` where the rows are those that a pull request changes, which are all that the workflow judges.
    """
    gfxes, kinds = zip(*sorted({(key.gfx, f"{key.gfx}/{key.cu_num}") for key in keys}), strict=True)
    label = f" (or label the pull request `{LABEL}`)" if by_label and LABEL_GFX in gfxes else ""
    gpus = f"a {kinds[0]} GPU" if len(kinds) == 1 else f"GPUs {' and '.join(kinds)}"
    return f"Run `moeshapes verify {arguments}` on {gpus}{label}, and commit what it writes below {RECORDS}."


def claims_of(row: TunedRow, declarations: Declarations) -> list[Claim]:
    """What a row claims under each use that it is judged under. Rows that do not ship claim nothing."""
    if not is_shipped(row.place.file):
        return []
    return [Claim(row, use) for use in judged_uses(row, declarations)]


def judged_uses(row: TunedRow, declarations: Declarations) -> tuple[Use, ...]:
    """The uses that a row is judged under: those that are declared for it, or the plainest one where none is."""
    return declarations.uses_of(row) or (undeclared_use(row.key)[0],)


def records_by_name(paths: Iterable[str]) -> Mapping[str, list[str]]:
    """The paths of record files, in order, by the files' names."""
    found: dict[str, list[str]] = {}
    for path in sorted(paths):
        found.setdefault(path.rpartition("/")[2], []).append(path)
    return found
