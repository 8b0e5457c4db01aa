from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branches import A, B, commit, git, repository
from moeshapes.family import OWN_CONFIGS, Family
from moeshapes.git import GitError
from moeshapes.row_diff import RowDiff, diff_rows, rows_since
from moeshapes.table import parse_table
from process import run_python
from table_text import STAGE1, line, table, write
from table_text import text as text_of


def family(*lines: str, file: str = "model_configs/a_tuned_fmoe.csv") -> dict[str, Family]:
    return {OWN_CONFIGS: Family({file: table(*lines)})}


def counts(diff: RowDiff) -> tuple[int, ...]:
    return len(diff.new), len(diff.changed), len(diff.retimed), len(diff.removed), diff.unchanged


def test_each_row_is_one_thing() -> None:
    before = family(line(token="1"), line(token="2"), line(token="4"), line(token="8"))
    after = family(
        line(token="1"),
        line(token="2", kernelName1=STAGE1.replace("x128x", "x64x")),
        line(token="4", us="59.5"),
        line(token="16"),
    )
    diff = diff_rows("base", before, after)
    assert counts(diff) == (1, 1, 1, 1, 1)
    assert diff.new[0].key.shape.token == 16
    assert diff.removed[0].key.shape.token == 8
    assert (diff.changed[0].before.kernel1, diff.changed[0].same_times) == (STAGE1, True)
    assert (diff.retimed[0].before.us, diff.retimed[0].after.us) == (60.75, 59.5)
    assert {row.key.shape.token for row in diff.to_prove} == {2, 16}
    assert (diff.merged, diff.new_keys) == (4, 1)


def test_a_row_that_moves_is_no_change() -> None:
    rows = [line(token="1"), line(token="2")]
    moved = diff_rows("base", family(*rows), family(*reversed(rows), file="tuned_fmoe.csv"))
    assert counts(moved) == (0, 0, 0, 0, 2)


def test_a_tag_keeps_rows_apart() -> None:
    diff = diff_rows("base", family(line(_tag="a")), family(line(_tag="b")))
    assert counts(diff) == (1, 0, 0, 1, 0)


def test_a_row_that_is_there_twice_now_is_new_once() -> None:
    diff = diff_rows("base", family(line()), family(line(), line()))
    assert counts(diff) == (1, 0, 0, 0, 1)
    assert (diff.merged, diff.new_keys) == (2, 0)


def test_the_winner_of_a_collision_is_as_it_was() -> None:
    loser, winner = line(kernelName1=STAGE1.replace("x128x", "x64x"), us="90"), line()
    assert counts(diff_rows("base", family(loser, winner), family(winner))) == (0, 0, 0, 1, 1)


def test_columns_that_change_places_change_each_row_below() -> None:
    swapped = text_of(line()).replace(b",us1,", b",x,").replace(b",us2,", b",us1,").replace(b",x,", b",us2,")
    after = Family({"model_configs/a_tuned_fmoe.csv": parse_table(swapped, "a_tuned_fmoe.csv")})
    diff = diff_rows("base", family(line()), {OWN_CONFIGS: after})
    assert counts(diff) == (0, 0, 1, 0, 0)
    assert (diff.retimed[0].after.us1, diff.retimed[0].after.us2) == (20.25, 40.5)


def test_a_key_that_cannot_be_read_is_none_that_is_new() -> None:
    diff = diff_rows("base", family(line()), family(line(), line(token="eight")))
    assert (diff.merged, diff.new_keys) == (2, 0)


def test_folders_are_compared_each_by_itself() -> None:
    there = {**family(), "generated/triton": family(line())[OWN_CONFIGS]}
    assert counts(diff_rows("base", family(line()), there)) == (1, 0, 0, 1, 0)


@given(st.lists(st.sampled_from(["1", "2", "4"]), unique=True), st.lists(st.sampled_from(["2", "4", "8"]), unique=True))
def test_the_way_back_is_the_reverse(old: list[str], new: list[str]) -> None:
    before, after = (family(*(line(token=token) for token in tokens)) for tokens in (old, new))
    there, back = diff_rows("base", before, after), diff_rows("base", after, before)
    assert (there.new, there.removed, there.unchanged) == (back.removed, back.new, back.unchanged)
    assert len(there.new) + there.unchanged == len(new)


def test_what_the_ref_gained_meanwhile_is_not_removed(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: [line()]}, topic={A: [line()], B: [line(token="16")]})
    commit(root, {A: [line(), line(token="32")]})
    git(root, "checkout", "--quiet", "topic")
    diff = rows_since(root, "main")
    assert counts(diff) == (1, 0, 0, 0, 1)
    assert diff.new[0].place.file == B
    assert diff.base == git(root, "merge-base", "main", "topic").strip()


def test_the_working_tree_is_what_counts(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: [line()]})
    write(root / A, text_of(line(us="1.5")))
    assert counts(rows_since(root, "main")) == (0, 0, 1, 0, 0)


def test_trees_without_a_common_commit_are_refused(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: [line()]})
    git(root, "checkout", "--quiet", "--orphan", "other")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "other")
    with pytest.raises(GitError, match="no commit in common"):
        rows_since(root, "main")


def test_nothing_heavy_is_imported(root: Path) -> None:
    code = "import sys, moeshapes.row_diff; print(*{name.partition('.')[0] for name in sys.modules})"
    imported = set(run_python("-c", code, cwd=root).stdout.split())
    assert not imported & {"torch", "pandas", "numpy", "yaml", "jsonschema", "jinja2"}
