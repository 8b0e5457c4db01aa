from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moeshapes import table as tables
from moeshapes.adopt import FULL_HEADER
from moeshapes.findings import Place, render
from moeshapes.row import UNTUNED_COLUMNS, UntunedRow
from moeshapes.rules import lint_rows
from moeshapes.table import (
    Kind,
    Table,
    key_of,
    parse_table,
    read_table,
    read_tuned_rows,
    read_untuned_rows,
    render_untuned,
)
from table_text import CELLS, line, row, table, text, untuned_line

EXAMPLES = Path(__file__).parent / "examples" / "tables"
NEGATIVE = sorted((EXAMPLES / "negative").glob("*.csv"))
POSITIVE = sorted((EXAMPLES / "positive").glob("*.csv"))


def stem(path: Path) -> str:
    return path.stem


def judged(table: Table) -> str:
    """The faults of the text, and what kernel names show: the examples' times and environments are nobody's."""
    names = [finding for finding in lint_rows(read_tuned_rows(table)) if "MOE300" < finding.rule.id < "MOE310"]
    return render([*table.findings, *names], "text")


@pytest.mark.parametrize("path", NEGATIVE, ids=stem)
def test_faulty_examples_are_found_and_kept(path: Path) -> None:
    found = read_table(path, path.name)
    assert judged(found) + "\n" == path.with_suffix(".txt").read_text("utf-8")
    assert found.render() == path.read_bytes()


@pytest.mark.parametrize("path", POSITIVE, ids=stem)
def test_sound_examples_have_no_finding(path: Path) -> None:
    found = read_table(path, path.name)
    assert judged(found) == ""
    assert found.render() == path.read_bytes()
    rows = read_tuned_rows(found) if found.kind is Kind.TUNED else read_untuned_rows(found)
    assert len(rows) == len(found.lines) > 0


def test_examples_are_there() -> None:
    assert len(NEGATIVE) > 25
    assert len(POSITIVE) > 5


_BITS = st.sampled_from(
    [
        b",",
        b"\n",
        b"\r\n",
        b"\r",
        b'"',
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"<<<<<<< HEAD\n",
        b"+",
        b"=======\n",
        b"8",
        b" ",
    ]
)


@given(
    st.lists(
        _BITS | st.just(line().encode()) | st.just(",".join(FULL_HEADER).encode()) | st.binary(max_size=9), max_size=12
    )
)
@example([])
@example([b"\n\n"])
def test_any_bytes_are_read_and_kept(pieces: list[bytes]) -> None:
    content = b"".join(pieces)
    found = parse_table(content, "a_tuned_fmoe.csv")
    assert found.render() == content
    read_tuned_rows(found)
    judged(found)


@given(st.lists(st.tuples(st.sampled_from(FULL_HEADER), st.text(max_size=8)), min_size=1, max_size=4))
def test_any_cells_are_found_or_read(changes: list[tuple[str, str]]) -> None:
    """A row is read, or something says why not; what is read has the canonical cells."""
    found = table(line(**dict(changes)))
    rows = read_tuned_rows(found)
    assert len(rows) == 1 or found.findings
    assert found.render() == text(line(**dict(changes)))


@given(st.lists(st.tuples(st.sampled_from(FULL_HEADER), st.text(max_size=8) | st.sampled_from(list(CELLS.values())))))
def test_what_is_seen_at_once_to_be_right_is_right(changes: list[tuple[str, str]]) -> None:
    """Lines that are read cell by cell, and lines that are not, come out the same but for `exact`."""
    changed = line(**dict(changes))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "sieve_of", lambda column: lambda cell: False)
        slowly = table(line(), changed)
    quickly = table(line(), changed)
    assert quickly.findings == slowly.findings
    assert quickly.lines[0].exact
    assert [replace(each, exact=False) for each in quickly.lines] == list(slowly.lines)
    assert [key_of(quickly, each) for each in quickly.lines] == [key_of(slowly, each) for each in slowly.lines]


@given(st.integers(0, len(FULL_HEADER) - 1), st.integers(1, 2))
def test_a_lost_cell_is_never_read_over(position: int, count: int) -> None:
    """Whatever cell is lost, the row is not read, unless only the tag is missing."""
    cells = line().split(",")
    shortened = cells[:position] + cells[position + count :]
    found = table(",".join(shortened))
    if shortened == cells[: len(shortened)]:
        return
    assert found.findings
    assert not read_tuned_rows(found)


def test_rows_are_typed() -> None:
    tuned = row(token="16", kernelName2="Null", run_1stage="1", us2="0", us="40.5")
    assert tuned.key.shape == UntunedRow(
        16,
        6144,
        512,
        257,
        9,
        CELLS["act_type"],
        CELLS["dtype"],
        CELLS["q_dtype_a"],
        CELLS["q_dtype_w"],
        CELLS["q_type"],
        1,
        0,
    )
    assert (tuned.key.gfx, tuned.key.cu_num) == ("gfx950", 256)
    assert (tuned.us, tuned.us1, tuned.us2, tuned.kernel2, tuned.run_1stage) == (40.5, 40.5, 0.0, "", True)
    assert (tuned.err1, tuned.tflops, tuned.bw, tuned.tag) == ("0.9%", "16.98", "2424.31", "")
    assert (tuned.place.file, tuned.place.line) == ("a_tuned_fmoe.csv", 2)


@pytest.mark.parametrize(("cu_num", "gfx"), [("80", "gfx942"), ("304", "gfx942"), ("256", "gfx950")])
def test_the_architecture_follows_from_cu_num_without_a_gfx_column(cu_num: str, gfx: str) -> None:
    header = FULL_HEADER[1:]
    fp8 = "torch.float8_e4m3fnuz" if gfx == "gfx942" else "torch.float8_e4m3fn"
    found = table(line(header, cu_num=cu_num, q_dtype_a=fp8), header=header)
    assert [tuned.key.gfx for tuned in read_tuned_rows(found)] == [gfx]
    assert not found.findings


def test_a_canonical_spelling_is_read_for_another() -> None:
    found = table(line(token="8.0", act_type="silu"))
    assert [tuned.key for tuned in read_tuned_rows(found)] == [row().key]
    assert len(found.findings) == 2


def test_a_shifted_row_still_has_a_key() -> None:
    cells = line().split(",")
    del cells[FULL_HEADER.index("flat")]
    found = table(",".join(cells))
    assert key_of(found, found.lines[0]) == row().key
    assert not read_tuned_rows(found)


def test_kinds_follow_names_then_columns() -> None:
    untuned = text(untuned_line(), header=UNTUNED_COLUMNS)
    assert parse_table(untuned, "configs/untuned_fmoe.csv").kind is Kind.UNTUNED
    assert parse_table(untuned, "rows.csv").kind is Kind.UNTUNED
    assert parse_table(text(line()), "rows.csv").kind is Kind.TUNED
    assert parse_table(text(line()), "a_tuned_fhmoe.csv").kind is Kind.OTHER
    assert parse_table(text(line()), "a_fhmoe_tuned_fmoe.csv").kind is Kind.TUNED
    assert parse_table(text(line()), "a_fhmoe_untuned_fmoe.csv").kind is Kind.OTHER


def test_untuned_rows_render_as_aiter_lays_them_out() -> None:
    content = text(untuned_line(), untuned_line(token="16"), header=UNTUNED_COLUMNS)
    assert render_untuned(read_untuned_rows(parse_table(content, "untuned_fmoe.csv"))) == content


@pytest.mark.parametrize(("limit", "value"), [("MAX_BYTES", 100), ("MAX_LINES", 2), ("MAX_COLUMNS", 5)])
def test_what_is_too_large_is_refused(limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, limit, value)
    path = tmp_path / "a_tuned_fmoe.csv"
    path.write_bytes(text(line(), line(token="16")))
    found = read_table(path)
    assert [finding.rule.id for finding in found.findings] == ["MOE102"]
    assert not read_tuned_rows(found)


def test_what_is_no_file_is_found_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, target in (("broken", "nowhere"), ("loop", "loop"), ("device", "/dev/zero"), ("above", "..")):
        (tmp_path / name).symlink_to(target)
    for name in ("none", "folder", "broken", "loop", "device", "above"):
        found = read_table(tmp_path / name, name)
        assert [(finding.rule.id, finding.place) for finding in found.findings] == [("MOE106", Place(name))]
        assert (found.header, found.lines, found.render()) == ((), (), b"")


def test_a_pipe_is_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, text(line()))
    os.close(writer)
    assert len(read_tuned_rows(read_table(Path(f"/dev/fd/{reader}"), "a_tuned_fmoe.csv"))) == 1
    os.close(reader)


def test_aiters_files_are_kept_byte_for_byte(aiter_configs: Path) -> None:
    paths = sorted(aiter_configs.rglob("*.csv"))
    assert len(paths) > 60
    for path in paths:
        assert read_table(path).render() == path.read_bytes(), path.name


def places(aiter_configs: Path, rule: str) -> list[str]:
    found = (
        finding for path in sorted(aiter_configs.rglob("*.csv")) for finding in read_table(path, path.name).findings
    )
    return [f"{finding.place.file.split('_')[0]}:{finding.place.line}" for finding in found if finding.rule.id == rule]


def test_aiters_malformed_rows_are_named(aiter_configs: Path) -> None:
    assert places(aiter_configs, "MOE112") == [f"dsv4:{number}" for number in (9, *range(11, 18))]
    assert places(aiter_configs, "MOE111") == [f"glm5:{number}" for number in (34, *range(38, 48))]
    assert places(aiter_configs, "MOE110") == []
    assert places(aiter_configs, "MOE115") == ["untuned:18"]
    assert len(places(aiter_configs, "MOE120")) == 13


def test_aiters_other_rows_are_read(aiter_configs: Path) -> None:
    found = [read_table(path) for path in sorted(aiter_configs.rglob("*tuned_fmoe*.csv"))]
    assert sum(len(read_tuned_rows(one)) for one in found) == 2402 - 8 - 13
    assert sum(len(one.lines) for one in found if one.kind is Kind.TUNED) == 2402
    errors = {finding.rule.id for one in found if one.kind is Kind.TUNED for finding in one.findings}
    assert errors == {"MOE111", "MOE112", "MOE120"}
