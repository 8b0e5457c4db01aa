from __future__ import annotations

import pytest

from moeshapes.comparable import same_launch, why_not_comparable
from moeshapes.family import Entry
from table_text import STAGE1, line, table

MXMOE = {
    "kernelName1": "flydsl_mxmoe_g1_a4w4_32x256x256",
    "kernelName2": "flydsl_mxmoe_g2_a4w4_32x256x256_atomic",
    "us1": "60.75",
    "us2": "0",
}
OTHER_TILE = STAGE1.replace("32x128x256", "32x256x256")


def entry(name: str = "a_tuned_fmoe.csv", **cells: str) -> Entry:
    only = table(line(**cells), name=name)
    return Entry(name, only, only.lines[0])


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (entry(), entry(us="70"), ""),
        (entry(), entry("b_tuned_fmoe.csv"), ""),
        (entry(), entry("b_tuned_fmoe.csv", us="70"), "different tables"),
        (entry(), entry(kernelName1=OTHER_TILE, us="70"), ""),
        (entry(), entry(kernelName1=OTHER_TILE), "equal"),
        (entry(), entry("b_tuned_fmoe.csv", kernelName1=OTHER_TILE, us="70"), "different tables"),
        (entry(), entry(us="70", **MXMOE), "as a whole"),
        (entry(), entry(us="70", us2="0"), "as a whole"),
        (entry(), entry(us="70", **MXMOE), "kernel families"),
        (entry(us="0"), entry(), "0 µs is no measurement"),
        (entry(), entry(us="-3"), "-3 µs is no measurement"),
        (entry(), entry(us="nan"), "inf µs is no measurement"),
        (entry(), entry(kernelName1="mine_v2", us="70"), "kernel families"),
    ],
)
def test_why_not(one: Entry, other: Entry, words: str) -> None:
    assert bool(why_not_comparable(one, other)) == bool(words)
    assert words in why_not_comparable(one, other)
    assert words in why_not_comparable(other, one)


def test_a_second_stage_that_is_not_there_is_one_launch_however_it_is_written() -> None:
    assert same_launch(entry(kernelName2="Null"), entry(kernelName2=""))
    assert not same_launch(entry(), entry(flat="1"))
