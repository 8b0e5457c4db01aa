from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.collision import ACTIVATION_IGNORED, COLLISION, TAG_IGNORED, Scope, find_collisions
from moeshapes.family import GENERAL, Entry, Family, entries_of, key_columns
from moeshapes.findings import Finding
from moeshapes.row import UNTUNED_COLUMNS
from moeshapes.table import Table
from table_text import line, table

SILU, GELU = {"act_type": "ActivationType.Silu"}, {"act_type": "ActivationType.Gelu"}


def find(*tables: Table, shape_columns: Sequence[str] = UNTUNED_COLUMNS) -> list[Finding]:
    family = Family({table.name: table for table in tables})
    return list(find_collisions(entries_of(family), key_columns(tables, shape_columns), Scope(fixable=True)))


def test_a_column_that_all_tables_lack_is_no_part_of_the_key() -> None:
    header = (*UNTUNED_COLUMNS, "cu_num", "us", "kernelName1", "kernelName2")
    assert len(find(table(line(header), line(header), header=header))) == 2


def test_a_crowd_of_rows_has_a_finding_each_and_no_endless_one() -> None:
    found = find(table(*[line()] * 3000))
    assert len(found) == 3000
    assert "a_tuned_fmoe.csv:9 (60.75 µs" in found[0].message
    assert "a_tuned_fmoe.csv:10 (" in found[0].message
    assert " and 2991 more rows; AITER" in found[0].message
    assert max(len(finding.message) for finding in found) < 3000


@given(st.lists(st.sampled_from(["8", "16", "8.0", " 8"]), max_size=6))
def test_every_row_that_shares_a_key_is_named_once(tokens: list[str]) -> None:
    values = [int(float(token)) for token in tokens]
    expected = [number for number, value in enumerate(values, 2) if values.count(value) > 1]
    found = find(table(*(line(token=token) for token in tokens)))
    assert sorted(finding.place.line for finding in found) == expected


def test_a_table_without_tag_has_another_tag_than_an_empty_one() -> None:
    """AITER fills an absent column with 0, the empty cell stays empty: its merge keeps both rows, its lookup one."""
    tagless = tuple(column for column in table(line()).header if column != "_tag")
    (found,) = find(table(line(), name="b"), table(line(tagless), header=tagless, name="a"))
    assert (found.rule, found.place.file) == (TAG_IGNORED, "a")
    assert "`_tag` (absent; empty there)" in found.message


@pytest.mark.parametrize("others", [["ActivationType.Foo"], ["ActivationType.Foo", "ActivationType.Bar"]])
def test_rows_whose_activation_cannot_be_read_collide_with_none(others: list[str]) -> None:
    """Their own finding says what is wrong with them; which rows they would meet, nobody knows."""
    for acts in (["ActivationType.Silu", *others], [*others, "ActivationType.Silu"]):
        assert find(table(*(line(act_type=act) for act in acts))) == []


@pytest.mark.parametrize(
    ("first", "second", "rules"),
    [
        (SILU, GELU, [ACTIVATION_IGNORED]),
        (SILU, {"_tag": "exact-m4096-a"}, [TAG_IGNORED]),
        (SILU, {**GELU, "_tag": "exact-m4096-a"}, [ACTIVATION_IGNORED]),
        (SILU, {"_tag": "flydsl_fallback"}, []),
        ({"_tag": "flydsl_fallback"}, GELU, []),
        (SILU, {**GELU, "token": "16"}, []),
        (SILU, {**GELU, "doweight_stage1": "1"}, []),
        (SILU, SILU, [COLLISION, COLLISION]),
    ],
)
def test_rows_that_a_lookup_cannot_tell_apart(
    first: dict[str, str], second: dict[str, str], rules: list[object]
) -> None:
    assert [finding.rule for finding in find(table(line(**first), line(**second)))] == rules


@pytest.mark.parametrize(
    ("second", "rules"),
    [
        (GELU, []),
        ({**GELU, "_tag": "a"}, []),
        ({"_tag": "a"}, [TAG_IGNORED]),
        (SILU, [COLLISION, COLLISION]),
    ],
)
def test_the_portable_kernels_are_looked_up_by_their_activation_too(
    second: dict[str, str], rules: list[object]
) -> None:
    rows = Family({"a": table(line(**SILU), line(**second), name="a")})
    columns = key_columns(rows.tables.values(), UNTUNED_COLUMNS)
    found = list(find_collisions(entries_of(rows), columns, Scope(portable=True)))
    assert [finding.rule for finding in found] == rules
    assert not any("AITER" in finding.message for finding in found)


def test_the_general_table_comes_first_and_serves() -> None:
    model, general = table(line(**SILU), name="model_configs/a_tuned_fmoe.csv"), table(line(**GELU), name=GENERAL)
    (found,) = find(general, model)
    assert found.place.file == model.name
    assert f"and get {GENERAL}:2 (60.75" in found.message


def test_between_tables_of_models_the_file_system_decides() -> None:
    (found,) = find(table(line(**SILU), name="a"), table(line(**GELU), name="b"))
    assert "whichever file AITER lists first" in found.message


def test_a_row_that_collides_and_is_hidden_is_both() -> None:
    found = find(table(line(**SILU), line(**GELU), line(**GELU)))
    assert [(finding.rule, finding.place.line) for finding in found] == [
        (COLLISION, 3),
        (COLLISION, 4),
        (ACTIVATION_IGNORED, 3),
    ]


@pytest.mark.parametrize(
    ("loser", "words"),
    [
        ({"us": "70.5"}, "Remove this row, or let `moeshapes keys --fix` do it."),
        ({"us": "70.5", "kernelName2": "moe_x", "us2": "0"}, "one was timed as a whole"),
        ({"us": "70.5", "block_m": "64"}, "Remove this row"),
    ],
)
def test_the_remedy_of_a_loser(loser: dict[str, str], words: str) -> None:
    _, lost = find(table(line(), line(**loser)))
    assert words in lost.next_step


def test_without_a_working_tree_of_ours_nothing_is_said_of_fix() -> None:
    entries = list(entries_of(Family({"a": table(line(), line(us="70.5"))})))
    found = find_collisions(entries, (*UNTUNED_COLUMNS, "cu_num", "gfx", "_tag"), Scope())
    assert [finding.next_step for finding in found] == ["Keep this row and remove the other.", "Remove this row."]


def origins(*names: str) -> Entry:
    only = table(line())
    return Entry("a", only, only.lines[0], origins=frozenset(names))


def beneath() -> Entry:
    only = table(line())
    return Entry("a", only, only.lines[0], origins=None)


@pytest.mark.parametrize(
    ("rows", "except_in", "expected"),
    [
        ([origins("", "x"), origins("x")], {""}, True),
        ([origins("", "x"), origins("")], {""}, False),
        ([origins("x"), origins("y")], {"x", "y"}, True),
        ([origins("x", "y"), origins("y")], {"x", "y"}, False),
        ([beneath(), origins("x")], {""}, True),
        ([beneath(), origins("x")], {"x", "y"}, False),
        ([beneath(), beneath()], {""}, False),
        ([beneath(), beneath()], set(), True),
    ],
)
def test_a_merge_is_blamed_only_for_what_no_side_has_by_itself(
    rows: list[Entry], except_in: set[str], expected: bool
) -> None:
    assert Scope(except_in=frozenset(except_in)).holds(rows) is expected
