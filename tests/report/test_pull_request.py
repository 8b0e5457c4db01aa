from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from branches import git
from moeshapes.report.gather import pull_request_of
from moeshapes.report.links import Links
from moeshapes.report.proof import Proof
from moeshapes.report.pull_request import PullRequest
from moeshapes.report.pull_request_view import measured
from moeshapes.report.render import SMALLEST, render_pull_request
from moeshapes.row import TunedRow
from moeshapes.row_diff import RowDiff
from pull_requests import Origin, commit
from report_samples import FASTER, MI355X, SK, pull_request, speed
from small_repository import PORTABLE_TABLE, portable_line, tuned_line, write_both_backends

LINKS = Links("https://e.example/{commit}/{file}#L{line}", "abc")


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> PullRequest:
    return pull_request_of(pull_request(tmp_path_factory.mktemp("repository")), "main")


@pytest.fixture(scope="module")
def text(request_: PullRequest) -> str:
    return render_pull_request(request_, Links())


def table(text: str, title: str) -> list[list[str]]:
    """The cells of the rows under a title."""
    _, _, after = text.partition(title)
    lines = [line for line in re.split(r"</details>|\n\*\*", after)[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_summary_says_what_happened(text: str) -> None:
    summary = text.splitlines()[2]
    for fact in (
        "3 rows new, 1 row changed, 1 row measured again, 2 rows removed",
        "5 rows in the merged tables, 3 new unique keys",
        "of 4 to prove 2 proven, 1 fail, 1 no record",
        "1 faster, 1 slower",
        "1 with NaN",
        "1 not deterministic",
    ):
        assert fact in summary


def test_a_row_is_what_it_is_under_its_worst_use(request_: PullRequest) -> None:
    proven = next(proof for proof in request_.proofs if proof.status == "proven")
    other = replace(proven, use=replace(proven.use, deployment="other"), record=None)
    for proofs in ((proven, other), (other, proven)):
        assert "of 1 to prove 1 no record" in list(replace(request_, proofs=proofs).facts)


def test_a_use_that_no_shape_declares_is_said_to_be_none(text: str) -> None:
    said = {row[1]: row[5].endswith(", no shape declares it") for row in table(text, "Uses that each row is proven")}
    assert said == {"<code>undeclared&#35;row</code>": True, "<code>tiny/tp2&#35;target</code>": False}


def test_the_main_table_has_what_is_urgent_first(text: str) -> None:
    rows = table(text, "**Rows**")
    assert [row[1] for row in rows] == ["32", "1", "2", "64", "8"]
    by_tokens = {row[1]: row for row in rows}
    assert by_tokens["8"] == [
        *("256/256/8/2 a4w4", "8", "34.07", "30"),
        *("−12.0 % ± 0.24 faster", "0", "yes", "MI355X gfx950/256"),
    ]
    assert by_tokens["64"][2:] == ["–", "60.75 (40.5 + 20.25) recorded", "–", "–", "–", "no record"]
    assert by_tokens["32"][5] == "12"
    assert by_tokens["1"][6] == "no, ±0.2 of the limit"
    assert by_tokens["1"][4].endswith("slower than the replaced")


def test_a_changed_row_shows_the_kernels_of_each_stage(text: str) -> None:
    first, second, recorded = table(text, "Kernels before and after")
    assert f"<code>{SK}</code>" in first
    assert second[3] == "the same"
    assert recorded[2:] == ["60.75 (40.5 + 20.25)", "55.5 (40.5 + 20.25)"]


def test_both_passes_and_the_noise_are_shown(text: str) -> None:
    rows = table(text, "Both passes of each comparison")
    assert [row[1] for row in rows[:6]] == ["baseline"] * 2 + ["replaced"] * 2 + ["itself: noise"] * 2
    assert rows[0][4:6] == ["−12.0 %", "−12.2 % to −11.8 %"]


def test_bits_and_kernels_of_the_baseline(text: str) -> None:
    rows = table(text, "Against the baseline")
    assert rows[0][2:] == ["no", "no", "0.450", "<code>moe_ck2stages_gemm1</code>"]


def test_an_emulation_says_nothing_of_kernels_or_their_bits(request_: PullRequest) -> None:
    proven = next(proof for proof in request_.proofs if proof.record and proof.status == "proven")
    record = json.loads(json.dumps(proven.record))
    record |= {"backend": "emulate", "status": "emulated", "device": {"kind": "cpu"}}
    record["numerics"]["baseline"] |= {"bitwise_equal": True, "launched": ["emulated Arithmetic(block_m=32)"]}
    emulated = replace(request_, proofs=(replace(proven, record=record),), retimed=())
    (row,) = table(render_pull_request(emulated, Links()), "Against the baseline")
    assert (row[2], row[-1]) == ("not known: no kernel ran", "none ran: its arithmetic was emulated")
    record["backend"] = "production"
    (row,) = table(render_pull_request(emulated, Links()), "Against the baseline")
    assert row[2] == "equal: the row changes nothing"


def test_what_is_gone_measured_again_and_never_there(text: str) -> None:
    assert [row[1].split()[2] for row in table(text, "Rows removed")] == ["4", "16"]
    assert table(text, "Measured again")[0][1:] == ["60.75 (40.5 + 20.25)", "59.5 (40.5 + 20.25)"]
    buckets = [(bucket, why) for _, bucket, why in table(text, "Buckets without a row")]
    assert buckets == [
        ("gap at 4, 16, 128..32768, 131072 (neither declared nor left out)", "<code>FlyDSL&#39;s fallback</code>")
    ]


def test_how_it_was_measured_can_be_repeated(text: str, request_: PullRequest) -> None:
    measured = text.partition("How it was measured")[2]
    assert "aiter e4048607a5" in measured
    assert "timing protocol 1, 10 calls a graph" in measured
    assert "moeshapes verify generated/aiter/configs/model_configs/tiny_tuned_fmoe.csv\n" in measured
    assert f"moeshapes report --base {request_.diff.base[:12]}\n" in measured
    assert f"at commit {request_.head[:12]}" in measured


def test_rows_link_to_their_lines(request_: PullRequest) -> None:
    linked = render_pull_request(request_, LINKS)
    file = "generated/aiter/configs/model_configs/tiny_tuned_fmoe.csv"
    assert f'<a href="https://e.example/abc/{file}#L4">8</a>' in linked
    assert "<a " not in render_pull_request(request_, Links())


def test_rows_whose_times_stayed_are_not_taken_for_measured(request_: PullRequest) -> None:
    (change,) = request_.diff.changed
    same = replace(change, after=replace(change.after, us=change.before.us))
    text = render_pull_request(replace(request_, diff=replace(request_.diff, changed=(same,))), Links())
    assert "not measured again" in text


def many(request: PullRequest, count: int) -> PullRequest:
    rows = [replace(proof, row=_with_line(proof.row, n)) for n, proof in enumerate(request.proofs * count)]
    return replace(request, proofs=tuple(rows))


def _with_line(row: TunedRow, line: int) -> TunedRow:
    return replace(row, place=replace(row.place, line=line + 2))


@pytest.mark.parametrize("limit", [65_536, SMALLEST])
def test_a_large_report_is_folded_and_cut_and_says_so(request_: PullRequest, limit: int) -> None:
    large = many(request_, 400)
    whole = render_pull_request(large, LINKS, 1 << 30)
    assert "1561 more rows" in whole
    assert "not fit" not in whole
    cut = render_pull_request(large, LINKS, limit)
    assert 0.5 * limit < len(cut.encode()) <= limit
    assert cut.count("<details>") == cut.count("</details>")
    assert "rows do not fit here" in cut
    assert "How it was measured" in cut
    left = sum(int(number) for number in re.findall(r"\*(\d+) more row", cut))
    shown = sum(cut.count(f"\n| {start}") for start in ("256/256", "<a href", "<code>"))
    assert left + shown == sum(whole.count(f"\n| {start}") for start in ("256/256", "<a href", "<code>"))


def test_rows_removed_are_counted_by_tag(request_: PullRequest) -> None:
    first, second = request_.diff.removed
    diff = replace(request_.diff, removed=(replace(first, tag="flydsl_fallback"), second))
    assert "2 rows removed (1 tagged flydsl_fallback)" in render_pull_request(replace(request_, diff=diff), Links())


def test_nothing_changed(request_: PullRequest) -> None:
    none = RowDiff("0" * 40, (), (), (), (), 5, 5, 0)
    text = render_pull_request(PullRequest(none, (), (), (), (), "1" * 40, False), Links())
    assert "No tuned row is new, changed or removed" in text
    assert "\n|" not in text


def test_names_from_a_pull_request_are_no_markup(request_: PullRequest) -> None:
    bad = "</code><img src=//e.example onerror=alert(1)>|`@you #1"
    (change,) = request_.diff.changed
    evil = replace(change, after=replace(change.after, kernel1=bad, tag=bad))
    proofs = tuple(_in_file(replace(proof, use=replace(proof.use, deployment=bad)), bad) for proof in request_.proofs)
    diff = replace(request_.diff, changed=(evil,), removed=(evil.after,))
    text = render_pull_request(replace(request_, diff=diff, proofs=proofs, unread=((bad, bad),)), LINKS)
    outside = re.sub(r"```console.*?```", "", text, flags=re.DOTALL)
    assert "<img" not in text
    assert "@you" not in outside
    assert re.findall(r"<(?!/?(?:details|summary|code|br|a)\b)", outside) == []


def test_no_name_of_a_table_ends_the_commands(request_: PullRequest) -> None:
    row = request_.diff.new[0]
    new = tuple(replace(row, place=replace(row.place, file=f"generated/{name}.csv")) for name in ("```", "$(id)"))
    text = render_pull_request(replace(request_, diff=replace(request_.diff, new=new, changed=())), Links())
    commands = text.partition("```console\n")[2].partition("\n```")[0]
    assert commands.splitlines()[0] == "moeshapes verify 'generated/$(id).csv'"


def test_of_many_files_that_are_no_records_some_are_named(request_: PullRequest) -> None:
    unread = tuple((f"generated/records/{number}.json", "not JSON") for number in range(1000))
    text = render_pull_request(replace(request_, unread=unread), Links(), SMALLEST)
    assert text.count("not JSON") == 20
    assert "- and others: 980 more\n" in text
    assert len(text.encode()) <= SMALLEST


def _timed_on(proof: Proof, board: str, reuse_bytes: int) -> Proof:
    record = {**(proof.record or {}), "device": MI355X | {"board": board}, "speed": speed(FASTER)}
    record["speed"]["reuse_bytes"] = reuse_bytes
    return replace(proof, record=record)


def test_records_that_came_about_alike_are_one_line(request_: PullRequest) -> None:
    proven = next(proof for proof in request_.proofs if proof.status == "proven")
    proofs = tuple(_timed_on(proven, "MI355X", size << 20) for size in (300, 7, 80))
    lines = render_pull_request(replace(request_, proofs=proofs), Links()).splitlines()
    (line,) = [line for line in lines if "timing protocol" in line]
    assert line.startswith("- 3 records: <code>MI355X gfx950/256, driver 6.14</code>; ")
    assert "<code>no weights read again within 7 to 300 MiB</code>" in line
    (alone,) = [each for each in measured(replace(request_, proofs=proofs[:1])) if "timing protocol" in each]
    assert "within 300 MiB" in alone


def test_a_report_of_thousands_of_ways_and_tables_fits(request_: PullRequest) -> None:
    proven = next(proof for proof in request_.proofs if proof.status == "proven")
    proofs = tuple(_timed_on(_in_file(proven, f"{n}_tuned_fmoe.csv"), f"board {n}", n << 20) for n in range(3000))
    diff = replace(request_.diff, new=tuple(proof.row for proof in proofs))
    text = render_pull_request(replace(request_, proofs=proofs, diff=diff), Links(), SMALLEST)
    assert len(text.encode()) <= SMALLEST
    assert text.count("timing protocol") == 10
    assert "- 2990 records that came about otherwise, in 2990 more ways\n" in text
    assert f"moeshapes verify --changed {request_.diff.base[:12]}\n" in text


def _in_file(proof: Proof, file: str) -> Proof:
    return replace(proof, row=replace(proof.row, place=replace(proof.row.place, file=file)))


def test_deployments_that_no_changed_row_serves_are_left_out(tmp_path: Path) -> None:
    """The same shape is declared for AITER and, on two GPUs, for the portable kernels."""
    origin = Origin(write_both_backends(tmp_path / "origin", portable_line(1)))
    git(origin.root, "init", "--quiet")
    commit(origin.root)
    of_aiter = origin.clone("aiter").table(tuned_line(8))
    portable = origin.clone("portable").table(portable_line(1), portable_line(8), table=PORTABLE_TABLE)
    on_amd = origin.clone("amd").table(portable_line(8, gfx="gfx950", cu_num="256"), table=PORTABLE_TABLE)
    assert [served(change.root) for change in (of_aiter, portable, on_amd)] == [
        ["tiny/tp2#target 256/256/8/2 on gfx950/256"],
        ["tiny/tp2-triton#target 256/256/8/2 on sm_90/132"],
        [f"tiny/tp2-triton#target 256/256/8/2 on {gpu}" for gpu in ("gfx950/256", "sm_90/132")],
    ]


def served(root: Path) -> list[str]:
    return [coverage.deployment.name for coverage in pull_request_of(root, "origin/main").coverages]
