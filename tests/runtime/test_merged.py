from __future__ import annotations

from dataclasses import replace
from datetime import date

from moeshapes.row import Key, TunedRow
from moeshapes.runtime.merged import MergedTable, merge
from moeshapes.runtime.version import Version
from table_text import line, row, table

SILU, GELU, SWIGLU = (f"ActivationType.{name}" for name in ("Silu", "Gelu", "Swiglu"))


def merged(*lines: str, day: date | None = None) -> MergedTable:
    return merge([table(*lines)], Version(day) if day else None)


def found(merged_table: MergedTable, key: Key, flydsl: bool = True) -> int | None:
    """The line of the row that a key finds."""
    match = merged_table.find(key, flydsl)
    return match.row.place.line if match else None


def with_cells(**cells: str) -> Key:
    return row(**cells).key


def test_a_key_finds_its_row_and_no_other() -> None:
    rows = merged(line(token="8"), line(token="16"))
    assert found(rows, with_cells(token="16")) == 3
    for cells in ({"token": "4"}, {"expert": "256"}, {"topk": "8"}, {"inter_dim": "256"}, {"cu_num": "304"}):
        assert found(rows, with_cells(**cells)) is None


def test_the_first_row_serves_whatever_its_activation() -> None:
    match = merged(line(act_type=SILU), line(act_type=GELU)).find(with_cells(act_type=GELU))
    assert match
    assert match.row.place.line == 2
    assert not match.own_activation
    assert [shadowed.place.line for shadowed in match.shadowed] == [3]
    assert not match.hangs_on_file_order


def test_before_may_2026_a_row_served_its_own_activation() -> None:
    before = merged(line(act_type=SILU), line(act_type=GELU), day=date(2026, 5, 8))
    assert found(before, with_cells(act_type=GELU)) == 3
    assert found(before, with_cells(act_type=SWIGLU)) is None


def test_rows_of_two_model_files_hang_on_the_order_of_files() -> None:
    files = [table(line(act_type=a), name=f"model_configs/{n}_tuned_fmoe.csv") for n, a in (("a", SILU), ("b", GELU))]
    match = merge(files).find(with_cells())
    assert match
    assert match.hangs_on_file_order
    general = merge([table(line(), name="tuned_fmoe.csv"), files[1]]).find(with_cells())
    assert general
    assert not general.hangs_on_file_order


def test_the_top_bucket_falls_back_to_the_largest_step_alone() -> None:
    rows = merged(line(token="32768"), line(token="16384"))
    match = rows.find(with_cells(token="131072"))
    assert match
    assert (match.row.place.line, match.own_tier) == (2, False)
    assert found(merged(line(token="16384")), with_cells(token="131072")) is None
    assert found(merged(line(token="32768"), line(token="131072")), with_cells(token="131072")) == 3
    assert found(merged(line(token="16384")), with_cells(token="32768")) is None


def test_fallback_rows_are_dropped() -> None:
    lines = (line(_tag="flydsl_fallback", kernelName1="cktile_a8w4_bm32"), line())
    assert found(merged(*lines), with_cells()) == 3
    assert found(merged(*lines), with_cells(), flydsl=False) == 3
    assert found(merged(lines[0]), with_cells()) is None
    assert not merged(lines[0]).shapes


def test_until_july_2026_fallback_rows_served_without_flydsl() -> None:
    before = merged(line(), line(_tag="flydsl_fallback", kernelName1="cktile_a8w4_bm32"), day=date(2026, 7, 7))
    assert found(before, with_cells(), flydsl=False) == 3
    assert found(before, with_cells()) == 2
    assert found(merged(line(_tag="other")), with_cells()) == 2


def test_until_june_2026_the_architecture_did_not_count() -> None:
    other = replace(with_cells(), gfx="gfx1250")
    assert found(merged(line()), other) is None
    assert found(merged(line(), day=date(2026, 6, 12)), other) == 2


def test_a_row_serves_although_cells_that_no_lookup_needs_are_wrong() -> None:
    shifted = merged(line(flat="355.73", tflops="11131.16", bw="", us="nan"))
    match = shifted.find(with_cells())
    assert match
    assert match.row.kernel1 == row().kernel1
    assert match.row.flat == 0


def test_what_is_spelled_otherwise_is_never_found() -> None:
    for cells in ({"q_type": "QuantType.per_128x128"}, {"dtype": "dtypes.bf16"}, {"q_dtype_w": "float4_e2m1fn_x2"}):
        assert not merged(line(**cells)).rows
    assert not merged(line(block_m="x")).rows
    assert isinstance(merged(line(token="8.0")).rows[0], TunedRow)
