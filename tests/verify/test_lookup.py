"""What a lookup finds beside a row, and the tables that AITER is given of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs import MXMOE, job, launch
from moeshapes.dispatch import LARGEST_STEP, TOP
from moeshapes.row import LAUNCH_COLUMNS, TunedRow
from moeshapes.runtime.merged import merge
from moeshapes.table import parse_table, read_tuned_rows
from moeshapes.verify.job import Job
from moeshapes.verify.lookup import COLUMNS, NO_LOOKUP, Lookup, cells_of, row_line
from moeshapes.verify.merged_tables import MergedTables, merged_rows
from small_repository import tuned_line, tuned_row
from table_text import text

GELU, SWIGLU = "ActivationType.Gelu", "ActivationType.Swiglu"
ROW = tuned_row()
FIELDS = launch(*MXMOE, ksplit=3)


def read(table: str) -> list[TunedRow]:
    found = parse_table(table.encode(), "tuned_fmoe.csv")
    assert not found.findings
    return read_tuned_rows(found)


def test_the_row_alone_is_a_table_that_reads_back_as_the_row() -> None:
    (found,) = read(Lookup(cells_of(ROW.key)).alone(FIELDS))
    assert found.key == ROW.key
    assert found.launch() == FIELDS


def test_without_a_row_it_is_a_table_without_rows() -> None:
    assert Lookup(cells_of(ROW.key)).merged(None) == NO_LOOKUP.merged(None) == ",".join(COLUMNS) + "\n"


def test_a_table_has_every_column_of_aiters_but_the_tag() -> None:
    assert set(COLUMNS) >= {"gfx", "cu_num", "token", "us", *LAUNCH_COLUMNS}
    assert "_tag" not in COLUMNS


def test_merged_the_row_stands_in_its_place() -> None:
    other = replace(ROW.key, shape=replace(ROW.key.shape, act_type=GELU))
    line = row_line(cells_of(other), launch("a", "b"))
    before, behind = Lookup(cells_of(ROW.key), before=(line,)), Lookup(cells_of(ROW.key), behind=(line,))
    lines = [found.merged(FIELDS).splitlines()[1:] for found in (before, behind)]
    own = row_line(cells_of(ROW.key), FIELDS)
    assert lines == [[line, own], [own, line]]
    assert before.merged(None).splitlines()[1:] == [line]


def test_what_is_no_key_makes_no_line() -> None:
    with pytest.raises(ValueError, match="no key"):
        NO_LOOKUP.alone(FIELDS)


def test_a_lookup_survives_its_jobs_journey() -> None:
    line = row_line(cells_of(ROW.key), FIELDS)
    sent = job(lookup=Lookup(cells_of(ROW.key), (line,), (line, line)), env={"A": "1"})
    assert Job.from_json(sent.to_json()) == sent


def test_jobs_of_another_environment_share_no_layer() -> None:
    assert job(env={"A": "1"}).layer_key != job().layer_key


# --- what is beside a row


def lookup(row: TunedRow | None, *others: TunedRow, key: TunedRow = ROW) -> tuple[list[str], list[str]]:
    """The first kernels of the rows before and behind."""
    found = MergedTables(others).lookup(key.key, row)
    assert found.key == cells_of(key.key)
    position = COLUMNS.index("kernelName1")
    before, behind = ([line.split(",")[position] for line in lines] for lines in (found.before, found.behind))
    return before, behind


def test_rows_of_other_activations_are_around_the_rows_own_place() -> None:
    first, last = tuned_row(act_type=GELU, kernelName1="first"), tuned_row(act_type=SWIGLU, kernelName1="last")
    assert lookup(ROW, first, tuned_row(kernelName1="replaced"), last) == (["first"], ["last"])
    assert lookup(None, first, tuned_row(kernelName1="own"), last) == (["first"], ["last"])


def test_rows_that_no_lookup_of_the_key_finds_are_not() -> None:
    others = ({"token": 16}, {"topk": "3"}, {"cu_num": "128"}, {"q_type": "QuantType.No"}, {"doweight_stage1": "1"})
    rows = [tuned_row(**{"act_type": GELU, **cells}) for cells in others]  # type: ignore[arg-type]
    assert lookup(ROW, *rows, tuned_row(act_type=GELU, _tag="flydsl_fallback")) == ([], [])


def test_the_largest_tier_falls_back_to_the_one_below() -> None:
    top = tuned_row(TOP)
    below = tuned_row(LARGEST_STEP, kernelName1="below")
    assert lookup(top, below, tuned_row(16384), key=top) == (["below"], [])
    assert lookup(tuned_row(LARGEST_STEP), tuned_row(TOP, act_type=GELU), key=below) == ([], [])


@pytest.mark.parametrize(
    ("file", "beside"),
    [
        ("generated/aiter/configs/tuned_fmoe.csv", ([], ["other"])),
        ("generated/aiter/configs/model_configs/a_tuned_fmoe.csv", ([], ["other"])),
        ("generated/aiter/configs/model_configs/z_tuned_fmoe.csv", (["other"], [])),
    ],
)
def test_a_new_row_stands_where_its_file_does(file: str, beside: tuple[list[str], list[str]]) -> None:
    new = replace(ROW, place=replace(ROW.place, file=file))
    other = tuned_row(act_type=GELU, kernelName1="other")
    there = replace(other, place=replace(other.place, file="../aiter/configs/model_configs/m_tuned_fmoe.csv"))
    assert lookup(new, there) == beside


# --- the merged tables


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text(*lines))


def test_our_rows_lie_over_aiters_of_the_same_table(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "aiter" / "configs", tmp_path / "ours"
    gelu = tuned_line(act_type=GELU, kernelName1="gelu")
    write(theirs / "tuned_fmoe.csv", tuned_line(16, kernelName1="general"))
    write(theirs / "model_configs" / "tiny_tuned_fmoe.csv", gelu, tuned_line(kernelName1="old"), tuned_line(1))
    own = ours / "generated" / "aiter" / "configs" / "model_configs"
    write(own / "tiny_tuned_fmoe.csv", tuned_line(kernelName1="new"))
    write(own / "more_tuned_fmoe.csv", tuned_line(32, kernelName1="more"))
    found = merged_rows(ours, theirs)
    assert [row.kernel1 for row in found] == ["general", "more", "gelu", "new", MXMOE[0]]
    assert MergedTables(found).lookup(ROW.key, found[3]).before != ()


def test_published_rows_see_what_the_static_lookup_says(aiter_configs: Path, tmp_path: Path) -> None:
    """Two accounts of one rule: the first line of a key's merged table is the row that `explain` finds."""
    rows = merged_rows(tmp_path, aiter_configs)
    tables, merged = MergedTables(rows), merge([])
    merged = replace(merged, rows=tuple(rows))
    assert len(rows) > 2000
    for row in rows[::7]:
        found = merged.find(row.key)
        beside = tables.lookup(row.key, row)
        if found is not None and row.tag == "":
            first = beside.merged(row.launch()).splitlines()[1]
            assert first == row_line(cells_of(found.row.key), found.row.launch())
