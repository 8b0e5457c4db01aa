"""What is kept: the fastest candidate that is right under every use and faster than what runs without it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from answers import AnsweringPool, errors, result
from gpus import gpu, local
from moeshapes.findings import Finding
from moeshapes.record import RECORDS, RecordStore
from moeshapes.record_name import file_name_of
from moeshapes.repository import load_declarations
from moeshapes.select.choice import Choice, account, choose, findings_of
from moeshapes.select.keep import UNPROVEN, attest, keep
from moeshapes.select.pairing import offers
from moeshapes.select.profile import read_profile
from moeshapes.select.trial import Bench, try_all
from moeshapes.table import read_table, read_tuned_rows
from moeshapes.verify import plan as planning
from moeshapes.verify.job import Job
from moeshapes.verify.merged_tables import MergedTables
from moeshapes.verify.plan import plan
from moeshapes.verify.run import run
from moeshapes.verify.site import WITHOUT_GPU, Site
from profiles import STAGE1, STAGE2, kernel_line, write_profile
from small_repository import LIMITED_MODEL, SHAPE, TABLE, tuned_line, write_small_repository
from table_text import text, write

SLOW, FAST = STAGE1, STAGE1.replace("_w2", "_w3")
LINES = (kernel_line("stage1", SLOW, 6), kernel_line("stage1", FAST, 3), kernel_line("stage2", STAGE2, 4))
ON_AMD = Site("auto", local(gpu(gfx="gfx950", cu_num=256, triton="", aiter="e4048607a5")))
MI355X = {"kind": "gpu", "gfx": "gfx950", "cu_num": 256, "board": "a board", "memory": 1 << 38, "driver": "6.12"}
NOTE = "MI355X"


def passed(verdict: str, ratio: float) -> dict[str, Any]:
    us = {"us": 10 * ratio, "other_us": 10.0, "dropped": 0, "clock_mhz": [2000.0, 2000.0], "seconds": 0.5}
    return {"verdict": verdict, "ratio": ratio, "low": ratio, "high": ratio, "ratios": [ratio] * 6, **us}


@dataclass
class Lab:
    """A GPU whose answers are made up, by the name of stage 1."""

    wrong: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    wrong_use: str = ""
    speed: dict[str, float] = field(default_factory=dict)
    verdict: str = "faster"
    replaced: str = "faster"
    emulated: bool = False

    def answer(self, job: Job) -> dict[str, Any] | str:
        assert job.launch
        name = job.launch["kernelName1"]
        if name in self.broken:
            return "SIGSEGV\nthe log"
        fails = name in self.wrong or (self.wrong_use and job.use_id.startswith(self.wrong_use))
        found = result(job, "fail" if fails else "pass")
        if self.emulated:
            return found
        ratio = self.speed.get(name, 0.9)
        against = [("baseline", self.verdict), *([("replaced", self.replaced)] if job.replaced else [])]
        compared = [
            {"against": what, "launched": ["k"], "verdict": verdict, "passes": [passed(verdict, ratio)] * 2}
            for what, verdict in against
        ]
        speed = {"protocol": 1, "tokens": 8, "calls": 10, "reuse_bytes": 1, "verdict": self.verdict}
        timed = {**speed, "comparisons": compared, "noise": [passed("same", 1.0)] * 2}
        return {**found, "emulated": False, "device": MI355X, "launched": [name], "speed": None if fails else timed}


@dataclass
class Selected:
    choices: list[Choice]
    findings: list[Finding]
    texts: list[str]
    records: list[Path]
    pool: AnsweringPool
    bench: Bench

    @property
    def kept(self) -> list[str]:
        return [choice.kept.candidate.row.kernel1 for choice in self.choices if choice.kept]

    @property
    def rules(self) -> list[str]:
        return [found.rule.id for found in self.findings]


def select(root: Path, lab: Lab, *lines: str, allow_emulated: bool = False, top: int = 3) -> Selected:
    profile = read_profile(write_profile(root / "profile_fmoe.csv", *(lines or LINES)), "profile_fmoe.csv")
    declarations, wrong = load_declarations(root)
    assert not wrong
    table = root / TABLE
    shipped = read_tuned_rows(read_table(table, TABLE)) if table.exists() else []
    pool, store = AnsweringPool(lab.answer), RecordStore(root / "build" / "records")
    site = WITHOUT_GPU if lab.emulated else ON_AMD
    bench = Bench(declarations, site, MergedTables(shipped), pool, store, shipped)
    offered = offers([profile], declarations, top, lambda row: True)
    choices = choose(offered, try_all(offered, bench, lambda verified: None))
    adopted = keep(choices, NOTE, root, bench, allow_emulated)
    findings = [*findings_of(choices, allow_emulated), *(found for each in adopted for found in each.findings)]
    records = list(attest(choices, root, bench))
    return Selected(choices, findings, [each.text for each in adopted], records, pool, bench)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_small_repository(tmp_path)


def adopted(root: Path) -> list[str]:
    path = root / TABLE
    return [row.kernel1 for row in read_tuned_rows(read_table(path, TABLE))] if path.exists() else []


def test_the_fastest_by_the_tuner_loses_where_it_is_wrong(root: Path) -> None:
    found = select(root, Lab(wrong={FAST}))
    assert (found.kept, adopted(root), found.rules) == ([SLOW], [SLOW], [])
    told = "\n".join(account(found.choices))
    assert "lost    7 µs, block_m 32, " + FAST in told
    assert "profile_fmoe.csv:3+4: fail under tiny/tp2#target: off" in told


def test_a_crash_is_that_candidates_alone(root: Path) -> None:
    found = select(root, Lab(broken={FAST}))
    assert adopted(root) == [SLOW]
    assert "error under tiny/tp2#target: SIGSEGV" in "\n".join(account(found.choices))


def test_what_was_timed_here_decides_and_not_the_tuners_times(root: Path) -> None:
    select(root, Lab(speed={SLOW: 0.8, FAST: 0.85}))
    assert adopted(root) == [SLOW]


def test_a_candidate_must_be_right_under_every_use(root: Path) -> None:
    write(root / "models/other.yaml", LIMITED_MODEL.replace("Tiny", "Other").encode())
    write(root / "shapes/other/tp2.yaml", SHAPE.replace("tiny", "other", 1).encode())
    found = select(root, Lab(wrong_use="other/"))
    assert {len(each.verified) for choice in found.choices for each in choice.tried} == {2}
    assert (found.kept, adopted(root), found.rules) == ([], [], ["MOE532"])


@pytest.mark.parametrize("verdict", ["same", "slower", "unresolved"])
def test_what_is_not_faster_than_without_it_is_not_kept(root: Path, verdict: str) -> None:
    found = select(root, Lab(verdict=verdict))
    assert (adopted(root), found.rules, found.records) == ([], ["MOE532"], [])
    assert f"{verdict}, not faster, than what runs without it" in "\n".join(account(found.choices))


def test_what_is_slower_than_the_row_that_is_there_is_not_kept(root: Path) -> None:
    write(root / TABLE, text(tuned_line(8)))
    before = adopted(root)
    found = select(root, Lab(replaced="slower"))
    assert (adopted(root), found.rules) == (before, ["MOE532"])
    select(root, Lab(replaced="faster", speed={FAST: 0.7}), top=2)
    assert adopted(root) == before  # what passed is cached, with its times


def test_where_all_crash_nothing_is_known_and_that_is_an_error(root: Path) -> None:
    found = select(root, Lab(broken={FAST, SLOW}))
    assert (adopted(root), found.rules) == ([], ["MOE533"])


def test_where_all_are_wrong_nothing_is_written_and_said_so(root: Path) -> None:
    found = select(root, Lab(wrong={FAST, SLOW}))
    assert (adopted(root), found.rules) == ([], ["MOE532"])
    assert "none of 2 candidates is kept" in found.findings[0].message


def test_emulation_alone_writes_nothing_unless_it_is_asked_for(root: Path) -> None:
    found = select(root, Lab(emulated=True))
    assert (found.kept, adopted(root), found.rules) == ([FAST], [], ["MOE534"])
    allowed = select(root, Lab(emulated=True), allow_emulated=True)
    assert (adopted(root), allowed.rules, allowed.records) == ([FAST], [], [])
    assert f"Source: {NOTE}; {UNPROVEN}" in allowed.texts[0]


def test_a_large_bucket_is_not_judged_without_its_gpu(root: Path) -> None:
    (root / "shapes/tiny/tp2.yaml").write_text(SHAPE.replace("[1, 8]", "[1, 512]"))
    lines = [kernel_line("stage1", SLOW, 60, token=512), kernel_line("stage2", STAGE2, 40, token=512)]
    found = select(root, Lab(emulated=True), *lines)
    assert (adopted(root), found.rules) == ([], ["MOE533"])
    assert "this bucket needs a GPU" in "\n".join(account(found.choices))


def test_the_records_of_what_is_adopted_are_those_of_the_shipped_row(root: Path) -> None:
    """`verify` takes them from there and runs nothing again; losers leave no record among them."""
    found = select(root, Lab(wrong={SLOW}))
    (record,) = found.records
    assert sorted((root / RECORDS).rglob("*.json")) == [record]
    content = json.loads(record.read_text())
    assert (content["status"], errors(content), record.name) == ("proven", [], file_name_of(content))
    bench = found.bench
    shipped = read_tuned_rows(read_table(root / TABLE, TABLE))
    planned = plan(bench.declarations, shipped, False, bench.site, MergedTables(shipped), timed=True)
    again = AnsweringPool(lambda job: "never asked")
    (verified,) = run(planned, RecordStore(root / "elsewhere", root / RECORDS), again, fresh=False)
    assert (verified.status, verified.cached, again.asked) == ("proven", True, [])


def test_a_second_run_judges_only_what_is_not_vouched_for(root: Path) -> None:
    first = select(root, Lab(broken={SLOW}))
    assert len(first.pool.asked) == 2
    again = select(root, Lab())
    assert len(again.pool.asked) == 1
    assert again.kept == [FAST]


def test_a_row_that_is_there_already_is_written_once(root: Path) -> None:
    select(root, Lab())
    before = (root / TABLE).read_bytes()
    again = select(root, Lab(replaced="same"))
    assert (root / TABLE).read_bytes() == before
    assert again.texts[0].startswith("There already: ")


def test_a_candidate_is_tried_as_the_row_of_its_table(root: Path) -> None:
    """Which row a lookup finds depends on the table: the job must be that of the row once it is adopted."""
    found = select(root, Lab())
    (choice,) = found.choices
    assert {v.subject.row.place.file for each in choice.tried for v in each.verified if v.subject.row} == {TABLE}


def test_versions_are_those_of_the_verifier(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evidence of other code is none of this one."""
    select(root, Lab())
    monkeypatch.setattr(planning, "versions_in_use", lambda: {"torch": "9", "moeshapes": "9", "verifier": "0" * 20})
    assert len(select(root, Lab()).pool.asked) == 2


def test_a_choice_without_a_candidate_says_what_was_refused(root: Path) -> None:
    found = select(root, Lab(), kernel_line("stage1", SLOW, 6, block_m=64), kernel_line("stage2", STAGE2, 4))
    assert found.rules == ["MOE532"]
    assert "refused: MOE304 wrong-block" in found.findings[0].message


def test_replacing_a_candidate_changes_nothing_else(root: Path) -> None:
    found = select(root, Lab())
    (choice,) = found.choices
    assert not replace(choice, kept=None).may_be_written
