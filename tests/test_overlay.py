from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.family import GENERAL, Entry, Family, entries_of, key_columns
from moeshapes.overlay import Overlay, lay_over, same_row
from moeshapes.row import UNTUNED_COLUMNS
from moeshapes.table import Table, read_table
from table_text import line, table

MODEL = "model_configs/a_tuned_fmoe.csv"
MXMOE = ("flydsl_mxmoe_g1_a4w4_32x256x256", "flydsl_mxmoe_g2_a4w4_32x256x256_atomic")
OLD_HEADER = tuple(column for column in table(line()).header if column not in ("gfx", "xbf16", "flat"))


def over(theirs: Mapping[str, Table], ours: Mapping[str, Table]) -> Overlay:
    columns = key_columns([*theirs.values(), *ours.values()], UNTUNED_COLUMNS)
    return lay_over(Family(theirs), entries_of(Family(ours)), columns)


def counts(overlay: Overlay) -> tuple[int, int, int, int]:
    return len(overlay.entries), overlay.new, len(overlay.replaced), overlay.unchanged


def test_rows_of_a_table_of_the_same_name_replace_by_key_and_others_are_added() -> None:
    theirs = {MODEL: table(line(token="1"), line(token="2"), line(token="4"))}
    ours = {MODEL: table(line(token="8"), line(token="2"), line(token="4", us="50")), GENERAL: table(line(token="16"))}
    overlay = over(theirs, ours)
    assert counts(overlay) == (5, 2, 1, 1)
    assert [entry.cell("token") for entry in overlay.entries] == ["16", "1", "2", "4", "8"]
    assert [entry.origins is None for entry in overlay.entries] == [False, True, False, False, False]


def test_a_row_of_another_table_replaces_nothing() -> None:
    assert counts(over({GENERAL: table(line())}, {MODEL: table(line())})) == (2, 1, 0, 0)


def test_another_tag_is_another_row_and_an_absent_one_is_empty() -> None:
    tagless = tuple(column for column in OLD_HEADER if column != "_tag")
    assert counts(over({MODEL: table(line())}, {MODEL: table(line(_tag="mine"))})) == (2, 1, 0, 0)
    assert counts(over({MODEL: table(line(tagless), header=tagless)}, {MODEL: table(line())})) == (1, 0, 0, 1)


def test_an_older_header_says_the_same() -> None:
    assert counts(over({MODEL: table(line(OLD_HEADER), header=OLD_HEADER)}, {MODEL: table(line())})) == (1, 0, 0, 1)
    changed = table(line(flat="1"))
    assert counts(over({MODEL: table(line(OLD_HEADER), header=OLD_HEADER)}, {MODEL: changed})) == (1, 0, 1, 0)


def test_rows_that_cannot_be_read_stay() -> None:
    assert counts(over({MODEL: table(line(token="x"))}, {MODEL: table(line(token="x"))})) == (2, 1, 0, 0)


def test_nothing_over_nothing() -> None:
    assert counts(over({}, {})) == (0, 0, 0, 0)
    assert counts(over({}, {MODEL: table(line(), line(token="1"))})) == (2, 2, 0, 0)


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        (line(us="90.96"), line(us="120.5718"), ["replaces AITER's row theirs:2 (90.96 µs, ", "(+32.6 %), the same"]),
        (line(us="0"), line(), ["60.75 µs, the same"]),
        (
            line(us="90.96", kernelName1=MXMOE[0], kernelName2=MXMOE[1], us2="0"),
            line(us="120.5718"),
            ["(+32.6 %), flydsl_moe1", "one was timed as a whole, the other stage by stage", "between kernel families"],
        ),
    ],
)
def test_a_replacement_is_shown_with_both_times(theirs: str, ours: str, words: list[str]) -> None:
    overlay = over({MODEL: table(theirs, name="theirs")}, {MODEL: table(ours, name="ours")})
    (found,) = overlay.findings
    assert str(found.place) == "ours:2"
    for word in words:
        assert word in found.message


@given(st.data())
def test_counts_add_up(data: st.DataObject) -> None:
    tokens = st.lists(st.sampled_from(["1", "2", "4", "8"]), unique=True)
    times = st.sampled_from(["50", "60"])
    theirs, ours = (
        {
            name: table(*(line(token=token, us=data.draw(times)) for token in data.draw(tokens)))
            for name in (GENERAL, MODEL)
        }
        for _ in range(2)
    )
    merged, new, replaced, unchanged = counts(over(theirs, ours))
    before, mine = (sum(len(each.lines) for each in tables.values()) for tables in (theirs, ours))
    assert new + replaced + unchanged == mine
    assert merged == before + new


def test_aiters_tables_over_themselves_change_nothing(aiter_configs: Path) -> None:
    paths = [aiter_configs / GENERAL, *aiter_configs.glob("model_configs/*_tuned_fmoe*.csv")]
    tables = {path.relative_to(aiter_configs).as_posix(): read_table(path) for path in paths}
    overlay = over(tables, tables)
    assert counts(overlay) == (2402, 0, 0, 2402)


def entry(row: str) -> Entry:
    only = table(row)
    return Entry("a", only, only.lines[0])


def test_spelling_does_not_make_another_row() -> None:
    assert same_row(entry(line()), entry(line(token="8.0")))
    assert same_row(entry(line(kernelName2="")), entry(line(kernelName2="Null")))
    assert not same_row(entry(line(us="x")), entry(line(us="y")))
