"""The workbench: a small repository in a folder of its own, whose parts inputs take the places of."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path

from fuzz.invariants import check_markdown, check_page, tags_of
from moeshapes.claim import Claim, judged_uses
from moeshapes.deployment import deployments
from moeshapes.expand import Declarations
from moeshapes.family import read_families
from moeshapes.findings import Place
from moeshapes.record import parse_record
from moeshapes.report.evidence import Evidence
from moeshapes.report.gather import coverages_of
from moeshapes.report.links import Links
from moeshapes.report.page import render_page
from moeshapes.report.proof import proofs_of
from moeshapes.report.pull_request import PullRequest, serving
from moeshapes.report.render import render_pull_request
from moeshapes.report.serving_result import Result, read_results
from moeshapes.repository import load_declarations
from moeshapes.row import TunedRow
from moeshapes.row_diff import RowDiff
from moeshapes.statement import Statement
from moeshapes.use import Use
from report_samples import FASTER, SLOWER, record, speed
from serving_samples import sglang
from small_repository import TABLE, tuned_row, write_small_repository
from table_text import write

LINKS = Links("https://example.com/blob/{commit}/{file}#L{line}", "0123456789")
NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)


class Workbench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = write_small_repository(folder / "repository")

    def write(self, name: str, data: bytes) -> Path:
        return write(self.root / name, data)

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    @cached_property
    def declarations(self) -> Declarations:
        return load_declarations(self.root)[0]

    @cached_property
    def proven(self) -> tuple[TunedRow, Use, str]:
        """A row that ships, its use, and where its record stands."""
        row = replace(tuned_row(8), place=Place(TABLE, 2))
        (use,) = judged_uses(row, self.declarations)
        return row, use, Claim(row, use).path

    @cached_property
    def record(self) -> bytes:
        row, use, _ = self.proven
        return json.dumps(record(row, use, speed(FASTER, 44.0, replaced=SLOWER))).encode()

    @cached_property
    def sound_record(self) -> Statement:
        return Statement(parse_record(self.record))

    @cached_property
    def sound_results(self) -> list[Result]:
        lines = "\n".join(json.dumps(sglang(2000.0 + number)) for number in range(3))
        return read_results(self.write("build/sound.jsonl", lines.encode()))[0]

    @cached_property
    def _tags(self) -> Counter[str]:
        return tags_of(self._page([]))

    def _page(self, rows: Sequence[TunedRow]) -> str:
        proofs = list(proofs_of(rows, self.declarations, Evidence(self.root)))
        coverages = coverages_of(read_families(self.root), deployments(self.declarations))
        return render_page(proofs, list(coverages), LINKS, "Made")

    def check_reports(self, rows: Sequence[TunedRow]) -> None:
        """Of these rows as new ones, with the records that are there: the pull request's markdown, and the page."""
        if not rows:
            return
        evidence = Evidence(self.root)
        proofs = tuple(proofs_of(rows, self.declarations, evidence))
        diff = RowDiff("0123456789", tuple(rows), (), (), tuple(rows[:1]), 0, len(rows), len(rows))
        touched = coverages_of(read_families(self.root), serving(deployments(self.declarations), rows))
        unread = tuple(evidence.unread.items())
        request = PullRequest(diff, proofs, (), tuple(touched), unread, "0123456789", False)
        check_markdown(render_pull_request(request, LINKS))
        check_page(self._page(rows), self._tags)

    def checkpoint(self, name: str, data: bytes) -> Path:
        """A checkpoint's folder with this file."""
        folder = self.folder / f"checkpoint-{name}"
        write(folder / "config.json", b"{}")
        write(folder / name, data)
        return folder
