"""Pull requests for tests: clones of a sample repository, changed on a branch, and what the gate says of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from branches import git
from keys_of_ssh import Signer
from moeshapes.claim import judged_uses
from moeshapes.record import RECORDS
from moeshapes.record_name import file_name, folder_name
from moeshapes.repository import load_declarations
from moeshapes.row import TunedRow
from moeshapes.signature import sign_record
from moeshapes.table import read_table, read_tuned_rows
from moeshapes.use import Use
from process import run_moeshapes
from report_samples import record
from small_repository import TABLE, write_small_repository
from table_text import text, write

Edit = Callable[[dict[str, Any]], object]
"""Changes a record in place."""
NAN: dict[str, Any] = {"bad_values": 3, "over_limit": "inf", "block_over_limit": "inf"}
"""What a token count says of a row that gave NaN."""
FORGERIES: dict[str, tuple[Edit, str]] = {
    "another row's": (lambda made: made["key"].update(token=16), "by its key, launch fields and use it is of "),
    "another launch": (lambda made: made["launch"].update(block_m=64), "by its key, launch fields and use it is of "),
    "another use": (lambda made: made["use"].update(bias=True), "by its key, launch fields and use it is of "),
    "another name of the use": (
        lambda made: made["use"].update(id="a#b"),
        "by its key, launch fields and use it is of ",
    ),
    "another GPU": (
        lambda made: made["device"].update(gfx="gfx942"),
        "it says proven, but ran on gfx942/256, and the row is for gfx950/256",
    ),
    "no such hour": (lambda made: made.update(time="2026-11-30T25:00:00+00:00"), "there is no time 2026-11-30T25:00"),
    "over the limit": (
        lambda made: made["numerics"]["counts"]["8"].update(over_limit=1.5),
        "`numerics.counts.8.over_limit`: 1.5",
    ),
    "a failure without reasons": (lambda made: made.update(status="fail"), "`reasons`: [] "),
    "infinity": (lambda made: made["numerics"]["counts"]["8"].update(spread=1e999), "Infinity is no number of JSON"),
    "an extra key": (lambda made: made.update(comment="x"), "`the record`: Additional properties"),
}
"""What makes a record of a row at 8 tokens none to rely on, and how the reason begins."""


def rows_at(root: Path, token: int, table: str) -> list[TunedRow]:
    return [row for row in read_tuned_rows(read_table(root / table, table)) if row.key.shape.token == token]


def prove(
    root: Path,
    token: int = 8,
    timed: Mapping[str, Any] | None = None,
    edit: Edit = lambda made: None,
    signer: Signer | None = None,
    table: str = TABLE,
    **count: object,
) -> list[Path]:
    """Writes attested records of a table's rows at a token count under each of their uses, as `verify` does."""
    declarations, _ = load_declarations(root)
    made = []
    for row in rows_at(root, token, table):
        for use in judged_uses(row, declarations):
            facts = deepcopy(record(row, use, timed, **count))
            edit(facts)
            made.append(write(path_of(root, row, use), (json.dumps(facts, indent=1) + "\n").encode()))
            if signer:
                sign_record(made[-1], signer.key)
    return made


def path_of(root: Path, row: TunedRow, use: Use) -> Path:
    return root / RECORDS / folder_name(row.place.file) / file_name(row.key, row.launch(), use)


def commit(root: Path, message: str = "a change") -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", message)


@dataclass(frozen=True)
class PullRequest:
    """A clone on a branch of its own."""

    root: Path

    def table(self, *lines: str, table: str = TABLE) -> PullRequest:
        """Gives a table these rows."""
        write(self.root / table, text(*lines))
        return self

    def prove(self, token: int = 8, **how: Any) -> PullRequest:
        prove(self.root, token, **how)
        return self

    def file(self, name: str, content: str) -> PullRequest:
        write(self.root / name, content.encode())
        return self

    def records(self) -> Iterator[Path]:
        return (self.root / RECORDS).rglob("*.json")

    def gate(self, *arguments: str, base: str = "origin/main") -> subprocess.CompletedProcess[str]:
        """Commits what there is, and judges it."""
        commit(self.root)
        return run_moeshapes("gate", "--base", base, *arguments, cwd=self.root)


@dataclass(frozen=True)
class Origin:
    """A sample repository whose main has some rows, each with a record unless it is made otherwise."""

    root: Path

    def clone(self, name: str = "pr") -> PullRequest:
        root = self.root.with_name(name)
        subprocess.run(["git", "clone", "--quiet", str(self.root), str(root)], check=True)
        git(root, "checkout", "--quiet", "-b", name)
        return PullRequest(root)


def make_origin(folder: Path, *lines: str, proven: Sequence[int] = (), **how: Any) -> Origin:
    """A repository of one shape with these rows, of which those of the `proven` tokens have records."""
    root = write_small_repository(folder / "origin", *lines)
    git(root, "init", "--quiet")
    for token in proven:
        prove(root, token, **how)
    commit(root, "main")
    return Origin(root)
