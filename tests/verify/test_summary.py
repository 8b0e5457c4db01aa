"""What a verification looks like: on a screen, as markdown, and in one closing line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import report_samples
from moeshapes.claim import Claim
from moeshapes.findings import Place
from moeshapes.report.evidence import Evidence
from moeshapes.statement import EMULATED, FAIL, PROVEN
from moeshapes.use import Use
from moeshapes.verify.plan import Subject
from moeshapes.verify.run import ERROR, SKIPPED, Verified
from moeshapes.verify.summary import (
    HEADERS,
    SPEED,
    closing_line,
    closing_lines,
    details,
    is_slower,
    lacking_line,
    markdown,
    table,
)
from report_samples import one_pass
from small_repository import TABLE, tuned_row
from table_text import write

USE = Use("tiny/tp2", "target", "a4w4", "silu")


def count(**changes: Any) -> dict[str, Any]:
    plain = {"over_limit": 0.25, "block_over_limit": 0.125, "bad_values": 0, "deterministic": True, "spread": 0.0}
    return {**plain, **changes}


def verified(
    status: str = EMULATED,
    *counts: dict[str, Any],
    share: float = 0.5,
    speed: dict[str, Any] | None = None,
    **changes: Any,
) -> Verified:
    """A row's result; errors and skips have no record."""
    row = tuned_row(8)
    numerics = {"counts": {str(n): each for n, each in enumerate(counts or [count()])}, "probes": {"share": share}}
    record = {"numerics": numerics, "speed": speed} if status in (PROVEN, EMULATED, FAIL) else None
    return replace(Verified(Subject(row.key, USE, row), status, record), **changes)


def cells(result: Verified) -> list[str]:
    """The cells of the only line of its markdown table."""
    *_, line = table([result], markdown=True).splitlines()
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_a_line_says_what_was_judged_and_how_far_off_it_was() -> None:
    expected = [
        "256/256/8/2",
        "8",
        "a4w4",
        "a_tuned_fmoe.csv:2",
        "tiny/tp2#target",
        "emulated",
        "0.250",
        "0",
        "yes",
        "50 %",
    ]
    assert cells(verified()) == expected
    assert len(expected) == len(HEADERS)


def test_what_was_timed_has_a_cell_for_it() -> None:
    timed = verified(PROVEN, speed=report_samples.speed(0.8, us=30.0))
    *_, line = table([timed], markdown=True).splitlines()
    assert line.strip("| ").endswith("| faster 37.5 → 30.0 µs, −20.0 % ± 0.24 (noise 0.26 %)")
    assert SPEED in table([timed, verified()])
    assert SPEED not in table([verified()])


def test_passes_that_disagree_widen_the_interval() -> None:
    speed = report_samples.speed(0.8)
    speed["comparisons"][0]["passes"] = [one_pass(0.8, margin=0.01), one_pass(0.9, margin=0.02)]
    assert "−15.1 % ± 6.5 (noise" in cells(verified(PROVEN, speed=speed))[-1]


def test_a_slower_row_is_named_with_its_times() -> None:
    slower = verified(PROVEN, speed=report_samples.speed(1.1, us=33.0, replaced=1.2))
    assert is_slower(slower)
    assert not is_slower(verified(PROVEN, speed=report_samples.speed(0.8)))
    text = details([slower, verified()])
    assert text.startswith("slower: 256/256/8/2 a4w4 token 8")
    assert "slower 30.0 → 33.0 µs, +10.1 % ± 0.25; slower than the replaced 27.5 → 33.0 µs, +20.1 % ± 0.26 (" in text


def test_the_worst_of_all_token_counts_is_shown() -> None:
    worst = verified(FAIL, count(), count(over_limit=0.5), count(block_over_limit=3.5, bad_values=2))
    assert cells(worst)[5:8] == ["fail", "3.500", "2"]
    assert cells(verified(FAIL, count(), count(over_limit="inf")))[6] == "inf"
    assert cells(verified(EMULATED, count(), count(deterministic=False, spread=0.125)))[8] == "no, ±0.12"


@pytest.mark.parametrize(("share", "shown"), [(1.0, "100 %"), (0.5, "50 %"), (0.01234, "1.23 %"), (0.0, "0 %")])
def test_the_share_of_probes_is_a_plain_percentage(share: float, shown: str) -> None:
    assert cells(verified(share=share))[9] == shown


def test_errors_have_no_figures_and_skips_no_line() -> None:
    assert cells(verified(ERROR))[5:] == ["error", "", "", "", ""]
    assert table([verified(SKIPPED)]).splitlines() == table([]).splitlines()


def test_a_default_plan_says_so() -> None:
    result = verified()
    assert cells(replace(result, subject=replace(result.subject, row=None)))[3] == "default plan"


def test_details_say_why_and_sum_up_skips() -> None:
    results = [
        verified(),
        verified(FAIL, note="token 3 is off"),
        verified(ERROR, note="SIGSEGV\nlast words"),
        *[verified(SKIPPED, note="needs a GPU")] * 2,
        verified(SKIPPED, note="another reason"),
    ]
    name = "256/256/8/2 a4w4 token 8 (a_tuned_fmoe.csv:2) under tiny/tp2#target"
    assert details(results).splitlines() == [
        f"fail: {name}",
        "    token 3 is off",
        f"error: {name}",
        "    SIGSEGV",
        "    last words",
        "skipped 1 of 3: another reason",
        f"    {name}",
        "skipped 2 of 3: needs a GPU",
        f"    {name}",
        f"    {name}",
    ]
    assert details([verified()]) == ""


@pytest.mark.parametrize(
    ("results", "line"),
    [
        ([], "0 rows × uses judged: 0 emulated (0 from the cache), 0 fail, 0 error; 0 skipped; 7 s"),
        (
            [verified(), verified(cached=True), verified(FAIL), verified(ERROR), verified(SKIPPED)],
            "4 rows × uses judged: 2 emulated (1 from the cache), 1 fail, 1 error; 1 skipped; 7 s",
        ),
        ([verified()], "1 row × use judged: 1 emulated (0 from the cache), 0 fail, 0 error; 0 skipped; 7 s"),
    ],
)
def test_the_closing_line_counts_everything(results: Sequence[Verified], line: str) -> None:
    assert closing_line(results, 7.4) == line


HOSTILE = "a|b`c<img src=x>![d](http://e)\x1b[31m*f*\n## g_tuned_fmoe.csv"


def hostile(status: str) -> Verified:
    """A row of a table whose name is made to act."""
    row = replace(tuned_row(8), place=Place(HOSTILE, 2))
    return verified(status, subject=Subject(row.key, USE, row), note="```\n</details> \x1b[2J")


def test_no_name_acts_on_a_terminal() -> None:
    shown = table([hostile(FAIL)]) + details([hostile(FAIL)])
    assert "\x1b" not in shown
    assert "\\x1b[31m" in shown
    assert "\n##" not in shown


def test_no_name_acts_as_markdown() -> None:
    text = markdown([hostile(FAIL), verified()], 1.0)
    lines = text.splitlines()
    (row,) = (line for line in lines if "g_tuned_fmoe" in line and line.startswith("|"))
    assert row.replace("\\|", "").count("|") == len(HEADERS) + 1
    assert "<img" not in row
    assert "![d](" not in row
    assert "\\*f\\*" in row
    assert text.count("```") == 2
    assert not any(line.startswith("##") for line in lines[1:] if not line.startswith("###"))


def test_markdown_holds_the_line_the_table_and_the_reasons() -> None:
    text = markdown([verified(), verified(FAIL, note="off")], 1.0)
    head, line, *_ = text.split("\n\n")
    assert head == "### moeshapes verify"
    assert line == closing_line([verified(), verified(FAIL)], 1.0)
    assert text.endswith("```\n")
    assert "```" not in markdown([verified()], 1.0)


def test_what_is_proven_is_counted_first_and_apart() -> None:
    results = [verified(PROVEN), verified(PROVEN, cached=True), verified(cached=True), verified(FAIL)]
    judged = "2 proven (0 by committed records, 1 from the cache), 1 emulated (1 from the cache), 1 fail, 0 error"
    assert closing_line(results, 7.4) == f"4 rows × uses judged: {judged}; 0 skipped; 7 s"
    assert cells(verified(PROVEN))[5] == "proven"


def test_why_rows_are_only_emulated_is_summed_up_with_the_first_of_them() -> None:
    results = [*[verified(note="no sm_90/132 GPU is here")] * 5, verified()]
    head, *named, more = details(results).splitlines()
    assert head == "emulated 5 of 6: no sm_90/132 GPU is here"
    assert named == ["    256/256/8/2 a4w4 token 8 (a_tuned_fmoe.csv:2) under tiny/tp2#target"] * 3
    assert more == "    and 2 more, which `--format json` lists"
    assert details([verified(SKIPPED, note="needs a GPU")]).startswith("skipped 1: needs a GPU\n")


def test_what_rests_on_committed_records_is_counted_apart_from_the_cache() -> None:
    results = [verified(PROVEN, cached=True, committed=True), verified(PROVEN, cached=True), verified(PROVEN)]
    assert "3 proven (1 by committed records, 1 from the cache), " in closing_line(results, 1.0)
    assert [r.shown_status for r in results] == ["proven (committed)", "proven (cached)", "proven"]


def on(gfx: str, cu_num: str, status: str = EMULATED, table: str = TABLE) -> Verified:
    row = replace(tuned_row(8, gfx=gfx, cu_num=cu_num), place=Place(table, 2))
    return verified(status, subject=Subject(row.key, USE, row))


def lacking(root: Path, *results: Verified) -> str:
    return lacking_line(results, "main", Evidence(root))


def test_changed_rows_that_no_gpu_ran_are_said_to_lack_what_the_gate_asks_for(tmp_path: Path) -> None:
    results = [on("gfx950", "256"), on("gfx950", "256", SKIPPED), verified(PROVEN)]
    line, closing = closing_lines(results, 1.0, lacking(tmp_path, *results))
    assert line == (
        "2 rows × uses without an attested record, which `gate` asks for: Run `moeshapes verify --changed main` on a "
        "gfx950/256 GPU (or label the pull request `verify-gpu`), and commit what it writes below generated/records."
    )
    assert closing.startswith("2 rows × uses judged: ")
    assert f"\n\n{line.replace('`', chr(92) + '`')}\n\n" in markdown(results, 1.0, line)


def test_the_label_is_named_only_for_the_gpu_that_it_runs_on(tmp_path: Path) -> None:
    line = lacking(tmp_path, on("sm_90", "132"), on("gfx942", "304"))
    assert "` on GPUs gfx942/304 and sm_90/132, and commit" in line


def test_no_word_of_the_gate_where_all_is_proven_or_nothing_ships(tmp_path: Path) -> None:
    default = replace(verified(), subject=replace(verified().subject, row=None))
    for results in ([on("gfx950", "256", status) for status in (PROVEN, FAIL, ERROR)], [default], [verified()]):
        assert lacking(tmp_path, *results) == ""
        assert closing_lines(results, 1.0) == [closing_line(results, 1.0)]


@pytest.mark.parametrize(("said", "is_asked_for"), [({}, False), ({"status": "emulated", "backend": "emulate"}, True)])
def test_rows_that_were_emulated_beside_their_committed_records_lack_none(
    said: dict[str, str], is_asked_for: bool, tmp_path: Path
) -> None:
    """As with `--backend emulate`, or a checkpoint's weights."""
    emulated = on("gfx950", "256")
    assert emulated.subject.row
    record = {**report_samples.record(emulated.subject.row, USE), **said}
    path = Claim(emulated.subject.row, USE).path
    write(tmp_path / path, json.dumps(record).encode())
    assert bool(lacking(tmp_path, emulated)) is is_asked_for
