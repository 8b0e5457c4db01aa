"""Waivers: findings of lint that are accepted for a reason and until a date. They stand in waivers.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from moeshapes.findings import Finding, Place
from moeshapes.row import TunedRow
from moeshapes.rule import Rule, Severity
from moeshapes.selection import filters_of, holds

EXPIRED_WAIVER = Rule(
    "MOE140", "expired-waiver", Severity.ERROR,
    what="A waiver's end date has passed.",
    why="What was accepted for a time is no longer: its findings are shown again.",
    fix="Correct what it waives, or extend it with a new reason.",
)  # fmt: skip
UNUSED_WAIVER = Rule(
    "MOE141", "unused-waiver", Severity.INFO,
    what="A waiver waives nothing.",
    why="It would hide the next finding of its kind.",
    fix="Remove it.",
)  # fmt: skip
BAD_WAIVER = Rule(
    "MOE142", "bad-waiver", Severity.ERROR,
    what="A waiver names a rule that there is not, or rows or a date that cannot be read.",
    why="It waives nothing, and looks as if it did.",
    fix="Correct it; generated/RULES.md lists the rules.",
)  # fmt: skip

WAIVERS = "waivers.yaml"
_OF_VERIFICATION = "MOE5"


@dataclass(frozen=True)
class Waiver:
    """Findings of `rule` on the rows with every (column, value) of `rows` in `file` (empty: any), up to `until`."""

    rule: str
    file: str
    rows: tuple[tuple[str, str], ...]
    reason: str
    until: date
    place: Place

    @property
    def is_of_lint(self) -> bool:
        """Whether lint can find what it waives; rules of verification are the gate's."""
        return not self.rule.startswith(_OF_VERIFICATION)

    def covers(self, finding: Finding, row: TunedRow | None) -> bool:
        """Whether the finding is waived; `row` is the tuned row at its place, None where none can be read there."""
        file = finding.place.file
        if finding.rule.id != self.rule or (self.file and self.file not in (file, file.rpartition("/")[2])):
            return False
        return not self.rows or (row is not None and all(holds(row, column, value) for column, value in self.rows))


@dataclass(frozen=True)
class Waived:
    """What is left of findings, how many were waived, and the waivers that waived none."""

    findings: list[Finding]
    count: int
    unused: list[Finding]


def waive(findings: Iterable[Finding], rows: Iterable[TunedRow], waivers: Iterable[Waiver]) -> Waived:
    """Takes away the findings that a waiver covers."""
    by_place = {(row.place.file, row.place.line): row for row in rows}
    kept: list[Finding] = []
    used: set[Waiver] = set()
    count = 0
    waivers = list(waivers)
    for finding in findings:
        row = by_place.get((finding.place.file, finding.place.line))
        covering = [waiver for waiver in waivers if waiver.covers(finding, row)]
        used.update(covering)
        count += bool(covering)
        if not covering:
            kept.append(finding)
    unused = [
        Finding(UNUSED_WAIVER, w.place, f"no finding of {w.rule} is waived by this") for w in waivers if w not in used
    ]
    return Waived(kept, count, unused)


def read_waivers(root: Path, today: date) -> tuple[list[Waiver], list[Finding]]:
    """The waivers of a repository that hold today, and what is wrong with the others. No file, no waivers."""
    path = root / WAIVERS
    if not path.is_symlink() and not path.exists():
        return [], []
    from moeshapes.document import load_document
    from moeshapes.schema_check import check_schema

    document, findings = load_document(path, WAIVERS)
    if document is None:
        return [], findings
    value, wrong = check_schema(document, "waivers")
    findings += wrong
    waivers: list[Waiver] = []
    for index, facts in enumerate(value.get("waivers", ())):
        if facts is not None:
            places = {key: document.place("waivers", index, key) for key in ("rule", "rows", "until")}
            own = list(_faults(facts, places, today))
            findings += own
            if not own:
                waivers.append(_waiver(facts, places["rule"]))
    return waivers, findings


def _waiver(facts: Mapping[str, str], place: Place) -> Waiver:
    wanted, _ = filters_of(facts["rows"]) if "rows" in facts else ([], [])
    return Waiver(
        facts["rule"], facts.get("file", ""), tuple(wanted), facts["reason"], date.fromisoformat(facts["until"]), place
    )


def _faults(facts: Mapping[str, str], places: Mapping[str, Place], today: date) -> Iterator[Finding]:
    from moeshapes.rule_book import all_rules

    if not {"file", "rows"} & set(facts):
        yield Finding(BAD_WAIVER, places["rule"], "a waiver needs `file` or `rows`: it would cover every table")
    if facts["rule"] not in all_rules():
        yield Finding(BAD_WAIVER, places["rule"], f"there is no rule {facts['rule']}")
    for problem in filters_of(facts["rows"])[1] if "rows" in facts else ():
        yield Finding(BAD_WAIVER, places["rows"], f"`rows`: {problem}")
    try:
        last_day = date.fromisoformat(facts["until"])
    except ValueError:
        yield Finding(BAD_WAIVER, places["until"], f"there is no day {facts['until']}")
        return
    if last_day < today:
        message = f"the waiver of {facts['rule']} ended on {last_day}: {facts['reason']}"
        yield Finding(EXPIRED_WAIVER, places["until"], message)
