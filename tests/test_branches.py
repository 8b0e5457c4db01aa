"""Merges of rows, compared with what git itself makes of them where text does not conflict."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from branches import MODELS, A, B, Tables, commit, git, repository
from moeshapes.branches import CHANGED_TWICE
from moeshapes.collision import ACTIVATION_IGNORED, COLLISION
from moeshapes.findings import Finding
from moeshapes.keys import check_keys
from moeshapes.table import MAX_BYTES
from table_text import line, text, write

MINE, THEIRS = line(us="100"), line(us="90")
OTHER = line(token="16")
LAST = line(token="64")


def found(root: Path, *refs: str) -> list[tuple[object, str]]:
    return [(finding.rule, str(finding.place)) for finding in findings(root, *refs)]


def findings(root: Path, *refs: str) -> Sequence[Finding]:
    return check_keys(root, against=refs).findings


def test_two_branches_that_are_clean_and_collide(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: [OTHER]}, one={A: [OTHER, MINE]}, two={A: [OTHER], B: [THEIRS]})
    assert found(root, "one") == found(root, "two") == []
    assert found(root, "one", "two") == [(COLLISION, f"one:{A}:3"), (COLLISION, f"two:{B}:2")]
    first, second = findings(root, "one", "two")
    assert "with `one` and `two` merged, " in first.message
    assert f"the same key has two:{B}:2 (90 µs" in first.message
    assert "different tables" in second.next_step
    git(root, "checkout", "--quiet", "one")
    assert found(root, "two") == [(COLLISION, f"{A}:3"), (COLLISION, f"two:{B}:2")]


def test_the_working_tree_counts_before_it_is_committed(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: [OTHER]}, two={A: [OTHER], B: [THEIRS]})
    write(root / A, text(OTHER, MINE))
    assert found(root, "two") == [(COLLISION, f"{A}:3"), (COLLISION, f"two:{B}:2")]


def test_a_branch_that_is_red_by_itself_is_named_once(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: [OTHER]}, one={A: [OTHER]}, two={A: [OTHER, MINE], B: [THEIRS]})
    assert found(root, "one", "two") == [(COLLISION, f"two:{A}:3"), (COLLISION, f"two:{B}:2")]


def test_a_collision_of_this_tree_is_not_blamed_on_branches(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: [MINE], B: [THEIRS]}, one={A: [MINE, OTHER], B: [THEIRS]})
    assert found(root, "one") == [(COLLISION, f"{A}:2"), (COLLISION, f"{B}:2")]


@pytest.mark.parametrize(
    ("base", "one", "two", "expected"),
    [
        ({A: [MINE]}, {A: []}, {A: [MINE], B: [THEIRS]}, {(COLLISION, f"{A}:2"), (COLLISION, f"two:{B}:2")}),
        ({A: [MINE]}, {B: [MINE]}, {A: [MINE]}, set()),
        (
            {A: [MINE]},
            {B: [MINE]},
            {A: [THEIRS]},
            {(CHANGED_TWICE, f"two:{A}:2"), (COLLISION, f"two:{A}:2"), (COLLISION, f"one:{B}:2")},
        ),
        ({A: [MINE]}, {A: [THEIRS]}, {A: [THEIRS]}, set()),
        ({A: [MINE]}, {A: [line(us="80")]}, {A: [THEIRS]}, {(CHANGED_TWICE, f"one:{A}:2")}),
        ({A: []}, {A: [MINE]}, {A: [THEIRS]}, {(COLLISION, f"one:{A}:2"), (COLLISION, f"two:{A}:2")}),
        ({A: []}, {A: [MINE]}, {A: [MINE]}, set()),
        ({A: [OTHER]}, {A: [OTHER, MINE]}, {A: []}, set()),
    ],
)
def test_rows_are_merged_from_their_common_ancestor(
    tmp_path: Path, base: Tables, one: Tables, two: Tables, expected: set[tuple[object, str]]
) -> None:
    root = repository(tmp_path, base, one=one, two=two)
    assert set(found(root, "one", "two")) == expected


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({A: [MINE, OTHER, LAST]}, {A: [OTHER, LAST, THEIRS]}),
        ({A: [OTHER, LAST], B: [line(token="128", us="50")]}, {A: [OTHER, LAST, line(token="128")]}),
        ({A: [line(token="4"), OTHER, LAST]}, {A: [OTHER, LAST], B: [line(token="4", us="50")]}),
        ({A: [LAST]}, {A: [OTHER, LAST], B: [OTHER]}),
        ({A: [line(token="16", act_type="ActivationType.Gelu"), OTHER, LAST]}, {A: [OTHER, LAST, line(token="1")]}),
    ],
)
def test_what_is_foretold_is_what_git_merges(tmp_path: Path, one: Tables, two: Tables) -> None:
    root = repository(tmp_path, {A: [OTHER, LAST]}, one=one, two=two)
    git(root, "checkout", "--quiet", "one")
    alone = set(check_keys(root).findings)
    foretold = {finding.rule for finding in findings(root, "two") if finding not in alone}
    git(root, "merge", "--quiet", "--no-edit", "two")
    assert {finding.rule for finding in check_keys(root).findings} == foretold | {finding.rule for finding in alone}


def test_a_row_that_comes_to_hide_another(tmp_path: Path) -> None:
    gelu = line(act_type="ActivationType.Gelu")
    root = repository(tmp_path, {A: [MINE]}, two={A: [MINE], B: [gelu]})
    assert found(root, "two") == [(ACTIVATION_IGNORED, f"two:{B}:2")]


def test_a_column_that_one_side_added_changes_no_row(tmp_path: Path) -> None:
    header = tuple(column for column in text().decode().strip().split(",") if column not in ("gfx", "xbf16"))
    root = repository(tmp_path, {}, one={A: [MINE, OTHER]})
    write(root / A, text(line(header, us="100"), header=header))
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "older header")
    assert found(root, "one") == []


def test_trees_without_a_common_ancestor(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: [MINE]})
    git(root, "checkout", "--quiet", "--orphan", "alone")
    commit(root, {B: [THEIRS]})
    assert found(root, "main") == [(COLLISION, f"main:{A}:2"), (COLLISION, f"{B}:2")]


def test_a_broken_table_of_a_branch_is_named_unless_it_is_so_here(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: ["x,y"]}, two={A: ["x,y"], B: ["z"]})
    assert [place for _, place in found(root, "two")] == [f"{A}:2:1", f"two:{B}:2:1"]


def test_a_huge_table_of_a_branch_is_not_read(tmp_path: Path) -> None:
    root = repository(tmp_path, {A: [MINE]})
    git(root, "checkout", "--quiet", "-b", "huge")
    with (root / B).open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "huge")
    git(root, "checkout", "--quiet", "main")
    (only,) = findings(root, "huge")
    assert (only.place.file, only.rule.name) == (f"huge:{B}", "too-large")


def test_many_branches_are_merged_with_each_other(tmp_path: Path) -> None:
    files = [f"{MODELS}/{number}_tuned_fmoe.csv" for number in range(4)]
    branches = {f"pr{number}": {A: [OTHER], file: [line(us=str(number + 10))]} for number, file in enumerate(files)}
    root = repository(tmp_path, {A: [OTHER]}, **branches)
    assert len(found(root, *branches, "pr0")) == 2 * 6


def test_an_aiter_checkout(tmp_path: Path) -> None:
    general, model = "aiter/configs/tuned_fmoe.csv", "aiter/configs/model_configs/x_tuned_fmoe.csv"
    root = repository(
        tmp_path, {general: [OTHER]}, one={general: [OTHER, MINE]}, two={general: [OTHER], model: [THEIRS]}
    )
    for folder in ("models", "shapes"):
        subprocess.run(["git", "rm", "-rq", folder], cwd=root, check=True)
    assert found(root, "one", "two") == [(COLLISION, f"one:{general}:3"), (COLLISION, f"two:{model}:2")]


def test_a_directory_below_the_top_of_a_repository(tmp_path: Path) -> None:
    nested = f"tools/shapes/{A}", f"tools/shapes/{B}"
    root = repository(tmp_path, {nested[0]: [MINE]}, two={nested[0]: [MINE], nested[1]: [THEIRS]})
    assert found(root / "tools" / "shapes", "two") == [(COLLISION, f"{A}:2"), (COLLISION, f"two:{B}:2")]
