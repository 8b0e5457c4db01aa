from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moeshapes.findings import render
from moeshapes.select.profile import read_profile
from profiles import EXAMPLES, HEADER, STAGE1, STAGE2, kernel_line, write_profile

NEGATIVE = sorted((EXAMPLES / "negative").glob("*.csv"))
POSITIVE = sorted((EXAMPLES / "positive").glob("*.csv"))


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem)
def test_faulty_profiles_are_found_line_by_line(path: Path) -> None:
    found = read_profile(path, path.name)
    assert render(found.findings, "text") + "\n" == path.with_suffix(".txt").read_text("utf-8")


@pytest.mark.parametrize("path", POSITIVE, ids=lambda path: path.stem)
def test_sound_profiles_have_no_finding(path: Path) -> None:
    found = read_profile(path, path.name)
    assert found.findings == ()
    assert len(found.kernels) + len(found.pairs) > 0


def test_examples_are_there() -> None:
    assert len(NEGATIVE) > 7
    assert len(POSITIVE) > 3


def test_candidates_that_failed_are_no_fault_and_no_candidate(tmp_path: Path) -> None:
    times = ["inf", "-inf", "-1", "nan", "", "0", "1e400"]
    lines = [kernel_line("stage1", STAGE1, us) for us in times]
    unknown = [kernel_line("stage1", STAGE1, 5, err=err) for err in ("nan%", "inf%", "", "nan")]
    found = read_profile(write_profile(tmp_path / "p.csv", *lines, *unknown), "p.csv")
    assert (found.kernels, found.findings, found.useless) == ((), (), len(lines) + len(unknown))


def test_a_dump_of_candidates_is_read_as_pandas_spells_it() -> None:
    first, second = read_profile(EXAMPLES / "positive" / "dumped.csv", "dumped.csv").kernels
    assert (first.block_m, first.flat, first.v2, first.err) == (32, 0, False, "1.2%")
    assert (second.flat, second.v2, second.err) == (0, None, "0.0%")


def test_an_older_profile_has_the_architecture_that_follows() -> None:
    found = read_profile(EXAMPLES / "positive" / "older.csv", "older.csv").kernels
    assert {timed.key.gfx for timed in found} == {"gfx950"}
    assert {timed.v2 for timed in found} == {None}
    assert [timed.us for timed in found] == [7.0, 4.0]


def test_the_later_time_of_one_kernel_counts(tmp_path: Path) -> None:
    lines = [kernel_line("stage1", STAGE1, us) for us in (5, 6)] + [kernel_line("stage2", STAGE2, 4)]
    found = read_profile(write_profile(tmp_path / "p.csv", *lines), "p.csv")
    assert [(timed.us, timed.place.line) for timed in found.kernels] == [(6, 3), (4, 4)]


def test_rows_with_a_tag_are_no_candidates() -> None:
    found = read_profile(EXAMPLES / "positive" / "pairs.csv", "pairs.csv")
    assert [row.us for row in found.pairs] == [10.0, 9.0]


def test_a_folder_or_a_missing_file_is_a_finding(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv"):
        (finding,) = read_profile(path, "p.csv").findings
        assert finding.rule.id == "MOE106"


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(
            st.one_of(st.sampled_from([*kernel_line("stage1", STAGE1, 5).split(","), "nan", "-1", "%"]), st.text()),
            min_size=20,
            max_size=26,
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_nothing_makes_it_raise(tmp_path: Path, lines: list[list[str]], with_header: bool) -> None:
    content = "\n".join([*([HEADER] if with_header else []), *(",".join(cells) for cells in lines)])
    path = tmp_path / "p.csv"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    found = read_profile(path, "p.csv")
    assert all(timed.us > 0 for timed in found.kernels)
