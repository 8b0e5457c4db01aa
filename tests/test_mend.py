from __future__ import annotations

from pathlib import Path

import pytest

from branches import A, B
from moeshapes.collision import COLLISION
from moeshapes.keys import check_keys
from moeshapes.mend import remove_losers
from table_text import STAGE1, line, text, write

OTHER_TILE = STAGE1.replace("32x128x256", "32x256x256")
OTHER = line(token="16")
COMBINED = line(
    us="10",
    us2="0",
    kernelName1="flydsl_mxmoe_g1_a4w4_32x256x256",
    kernelName2="flydsl_mxmoe_g2_a4w4_32x256x256_atomic",
)


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (
            [line(us="100"), OTHER, line(us="90", kernelName1=OTHER_TILE)],
            [OTHER, line(us="90", kernelName1=OTHER_TILE)],
        ),
        ([line(us="100"), line(us="90"), line(us="95")], [line(us="90")]),
        ([line(), line()], [line()]),
    ],
)
def test_the_loser_goes_and_the_rest_stays_byte_for_byte(tmp_path: Path, lines: list[str], left: list[str]) -> None:
    path = write(tmp_path / A, text(*lines).replace(b"\n", b"\r\n"))
    removals = remove_losers(tmp_path)
    assert path.read_bytes() == text(*left).replace(b"\n", b"\r\n")
    assert len(removals) == len(lines) - len(left)
    assert all(removal.lost.us >= removal.kept.us for removal in removals)
    assert not any(finding.rule is COLLISION for finding in check_keys(tmp_path).findings)


@pytest.mark.parametrize(
    "tables",
    [
        {A: [line(us="100", kernelName1=OTHER_TILE)], B: [line(us="90")]},
        {A: [line(us="100")], B: [line(us="90")]},
        {A: [line(), COMBINED]},
        {A: [line(), line(us="10", us2="0")]},
        {A: [line(), line(us="0")]},
        {A: [line(kernelName1=OTHER_TILE), line()]},
        {A: [line(), line(_tag="exact-m4096-a")]},
        {A: [line(), line(act_type="ActivationType.Gelu")]},
        {A: [line(token="x"), line(token="x")]},
    ],
    ids=[
        "other run",
        "same kernels in another run",
        "as a whole",
        "same kernels as a whole",
        "no measurement",
        "equal",
        "tag",
        "activation",
        "unread",
    ],
)
def test_what_times_cannot_decide_is_left_alone(tmp_path: Path, tables: dict[str, list[str]]) -> None:
    paths = [write(tmp_path / name, text(*lines)) for name, lines in tables.items()]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths]
    assert remove_losers(tmp_path) == []
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths] == before


def test_one_and_the_same_row_in_two_tables_stays_in_the_first(tmp_path: Path) -> None:
    write(tmp_path / A, text(line()))
    write(tmp_path / B, text(line(), OTHER))
    (removal,) = remove_losers(tmp_path)
    assert (str(removal.lost.place), str(removal.kept.place)) == (f"{B}:2", f"{A}:2")
    assert removal.why == "launch and time are the same, and its table comes first in the merge"
    assert (tmp_path / B).read_bytes() == text(OTHER)


def test_a_removal_says_why_the_other_row_is_kept(tmp_path: Path) -> None:
    write(tmp_path / A, text(line(us="100"), line(us="90"), OTHER, OTHER))
    assert [removal.why for removal in remove_losers(tmp_path)] == [
        "its time is the lowest",
        "launch and time are the same, and it comes first in the merge",
    ]


def test_only_comparable_losers_of_a_key_go(tmp_path: Path) -> None:
    write(tmp_path / A, text(line(us="100"), line(us="90"), COMBINED.replace(",10,", ",95,")))
    assert [str(removal.lost.place) for removal in remove_losers(tmp_path)] == [f"{A}:2"]
    assert len(check_keys(tmp_path).findings) == 2


@pytest.mark.parametrize("link", ["generated", "generated/aiter/configs", "generated/aiter/configs/model_configs"])
def test_tables_behind_a_link_stay_and_keys_says_so(tmp_path: Path, link: str) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    before = text(line(us="100"), line(us="90"))
    write(root / A, before)
    (root / link).rename(elsewhere)
    (root / link).symlink_to(elsewhere)
    assert remove_losers(root) == []
    (behind,) = elsewhere.rglob("*.csv")
    assert behind.read_bytes() == before
    assert (link, "MOE404") in {(finding.place.file, finding.rule.id) for finding in check_keys(root).findings}
