from __future__ import annotations

from moeshapes.runtime.merged import merge
from moeshapes.runtime.nearest import nearest_keys
from table_text import line, row, table


def near(*lines: str, **cells: str) -> list[str]:
    return [str(found) for found in nearest_keys(row(**cells).key, merge([table(*lines)]))]


def test_the_fewest_differences_come_first() -> None:
    lines = [line(expert=e, topk=k) for e, k in (("32", "8"), ("33", "8"), ("257", "9"), ("64", "6"))]
    found = near(*lines, expert="33", topk="9")
    assert [text.partition(" ")[0].removeprefix("6144/512/") for text in found] == ["33/8", "257/9", "32/8", "64/6"]
    assert "differs in topk; tuned for 8" in found[0]
    assert "differs in expert, topk" in found[2]


def test_the_same_shape_at_other_buckets_is_the_nearest() -> None:
    lines = [line(token=str(token)) for token in (1, 2, 4, 64)]
    assert near(*lines) == [
        "6144/512/257/9 float8_e4m3fn x float4_e2m1fn_x2 on gfx950/256 lacks the bucket; tuned for 1..4, 64"
    ]


def test_what_differs_in_more_is_not_near() -> None:
    assert not near(line(expert="8", topk="2", inter_dim="1024"))
    assert "device" in near(line(gfx="gfx942", cu_num="304", q_dtype_a="torch.float8_e4m3fn"))[0]


def test_no_more_than_four_are_shown() -> None:
    assert len(near(*(line(inter_dim=str(128 * n)) for n in range(5, 20)))) == 4
