from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from moeshapes.findings import printable
from moeshapes.report.markdown import LONGEST_CELL, Section, cell, code, fit

HOSTILE = [
    "<script>alert(1)</script>",
    "a | b",
    "[x](http://e.example)",
    "@everyone",
    "#1",
    "`code`",
    "*b* _i_ ~s~",
    "https://e.example",
    "www.e.example",
    "$x$",
    "</code></td>",
    "-->",
    "\x1b[31mred",
    "![](//e.example/x.png)",
    "a\nb",
    "=HYPERLINK(1)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_is_markup_stays(text: str) -> None:
    written = str(cell(text))
    assert not re.search(r"[<>|`*\[\]@\\~$!{}\"'\x00-\x1f]|&(?!#[0-9]+;)", written)
    assert "://" not in written
    assert "www." not in written
    assert html.unescape(written) == printable(text)


@given(st.text(max_size=LONGEST_CELL // 10))
def test_a_cell_reads_as_the_text(text: str) -> None:
    assert html.unescape(str(cell(text))) == printable(text)


def test_words_stay_as_they_are_to_read() -> None:
    name = "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui_fp8 (a) 1.5 −2 %"
    assert cell(name) == name
    assert cell("_a_ b_") == "&#95;a&#95; b&#95;"


def test_long_text_is_cut() -> None:
    assert len(html.unescape(cell("x" * 10_000))) == LONGEST_CELL
    assert code("") == ""


def section(rows: int, importance: int) -> Section:
    cells = (Markup("x" * 10), Markup("é"))
    return Section("t", "", ("a", "b"), importance, rows=(cells,) * rows)


def sizes(sections: list[Section]) -> list[tuple[int, int]]:
    return [(len(each.rows), each.left_out) for each in sections]


def test_the_least_important_is_cut_first_and_counted() -> None:
    kept = fit([section(50, 2), section(50, 1)], excess=1)
    assert sizes(kept)[0] == (50, 0)
    assert sum(sizes(kept)[1]) == 50
    assert 0 < kept[1].left_out < 50


def test_what_is_cut_makes_up_for_the_excess_and_for_saying_so() -> None:
    line = len("| xxxxxxxxxx | é |\n".encode())
    cut = sum(each.left_out for each in fit([section(500, 2), section(20, 1)], excess=3000))
    assert cut * line >= 3000 + 2 * len("*500 more rows do not fit here; a larger --limit shows them.*")


def test_no_more_is_cut_than_there_is() -> None:
    assert sizes(fit([section(3, 1), section(0, 2)], excess=10**9)) == [(0, 3), (0, 0)]
