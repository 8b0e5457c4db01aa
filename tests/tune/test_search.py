"""The search tries a sum of candidates, and finds the fastest pair of stages that add up."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from moeshapes.tune.candidates import Candidates, Pair
from moeshapes.tune.screening import Seen
from moeshapes.tune.search import ALIKE, WITHIN, Search, survivors

Times = dict[str, float]


def candidates(rows: int, firsts: int, seconds: int) -> Candidates:
    names = tuple(f"{rows}:1:{n}" for n in range(firsts)), tuple(f"{rows}:2:{n}" for n in range(seconds))
    return Candidates(rows, *names, f"{rows}:2:plain")


def look(pairs: list[Pair], times: Times) -> dict[Pair, Seen]:
    return {pair: Seen(us=10 * ratio, ratio=ratio) for pair in pairs for ratio in [times[pair[0]] + times[pair[1]]]}


def searched(search: Search, times: Times) -> tuple[list[tuple[float, Pair]], int]:
    """The pairs, best first, and how many were tried."""
    seen = look(search.first_step(), times)
    seen |= look(search.second_step(seen), times)
    return search.ranked(seen), len(seen)


@given(st.data())
def test_the_fastest_pair_of_stages_that_add_up_is_first(data: st.DataObject) -> None:
    blocks = [candidates(rows, data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))) for rows in (16, 32)]
    names = [name for each in blocks for name in (*each.firsts, *each.seconds, each.plain_second)]
    times = {name: data.draw(st.integers(1, 1000)) / 1000 for name in names}
    (best, pair), *_ = searched(Search(blocks), times)[0]
    within_block = {each.block_m: min(times[f] for f in each.firsts) + times[each.plain_second] for each in blocks}
    tried = [each for each in blocks if within_block[each.block_m] <= WITHIN * min(within_block.values())]
    wanted = min(times[f] + times[s] for each in tried for f in each.firsts for s in each.seconds)
    assert best <= wanted + 1e-9
    assert abs(times[pair[0]] + times[pair[1]] - best) < 1e-9


def test_a_sum_is_tried_and_no_product() -> None:
    block = candidates(16, 30, 20)
    times = dict.fromkeys((*block.firsts, *block.seconds, block.plain_second), 0.4)
    ranked, tried = searched(Search([block]), times)
    assert tried == 30 + 20
    assert len(ranked) == 30 + 30 * 20


def test_a_block_that_is_far_behind_is_left() -> None:
    near, far = candidates(16, 2, 5), candidates(32, 2, 5)
    times = dict.fromkeys((*near.firsts, *near.seconds, near.plain_second), 0.3)
    times |= dict.fromkeys((*far.firsts, *far.seconds, far.plain_second), 0.3 * 1.3)
    search = Search([near, far])
    assert {pair[0][:2] for pair in search.second_step(look(search.first_step(), times))} == {"16"}


def test_what_does_not_run_is_no_base_for_anything() -> None:
    block = candidates(16, 2, 2)
    search = Search([block])
    seen = {pair: Seen(error="out of resources") for pair in search.first_step()}
    assert search.second_step(seen) == []
    assert search.ranked(seen) == []


def test_the_row_that_is_there_is_looked_at() -> None:
    there = "another", "of an earlier day"
    assert there in Search([candidates(16, 1, 1)], there).first_step()


@given(st.lists(st.tuples(st.floats(0.1, 1.5), st.integers(0, 4), st.integers(0, 4)), max_size=40), st.integers(1, 6))
def test_survivors_are_the_best_that_may_be(found: list[tuple[float, int, int]], most: int) -> None:
    ranked = sorted(
        (ratio, (f"one{a}", f"two{b}")) for ratio, a, b in {(a, b): (r, a, b) for r, a, b in found}.values()
    )
    kept = survivors(ranked, most, lambda pair: pair[0] != "one0")
    assert kept == sorted(kept)
    assert len(kept) <= most
    assert all(ratio < 1 and pair[0] != "one0" for ratio, pair in kept)
    assert all(times <= ALIKE for times in Counter(name for _, pair in kept for name in pair).values())
    allowed = [each for each in ranked if each[0] < 1 and each[1][0] != "one0"]
    assert kept[:1] == allowed[:1]
