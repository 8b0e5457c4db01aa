"""The runs of a token count: which inputs, which of them poisoned."""

from __future__ import annotations

import itertools

import pytest

from moeshapes.verify.poison import Pattern
from moeshapes.verify.runs import FULL_RUNS_UP_TO, A, B, C, Run, runs_of

BUCKETS = (1, 2, 8, FULL_RUNS_UP_TO, 2 * FULL_RUNS_UP_TO, 256)
every_bucket = pytest.mark.parametrize("bucket", BUCKETS)


def all_runs(bucket: int) -> list[Run]:
    """The runs of a bucket's three token counts."""
    return [run for position in range(3) for run in runs_of(bucket, position)]


@every_bucket
def test_consecutive_runs_never_share_inputs(bucket: int) -> None:
    for position in range(3):
        runs = runs_of(bucket, position)
        assert all(one.call != other.call for one, other in itertools.pairwise(runs))


@every_bucket
def test_unpoisoned_runs_repeat_a(bucket: int) -> None:
    for position in range(3):
        repeats = [run for run in runs_of(bucket, position) if run.call == A and run.poison is None]
        assert len(repeats) >= 2


def test_small_buckets_get_ten_runs_half_of_them_poisoned_and_one_with_poisoned_indices() -> None:
    for bucket in (1, FULL_RUNS_UP_TO):
        runs = runs_of(bucket, 0)
        plain = [run for run in runs if run.poison is not Pattern.INDEX]
        assert (len(plain), len(runs)) == (10, 11)
        assert sum(run.poison is not None for run in plain) == 5


def test_large_buckets_get_three_runs_one_of_them_poisoned() -> None:
    for position in range(3):
        runs = runs_of(FULL_RUNS_UP_TO + 1, position)
        assert len(runs) == 3
        assert sum(run.poison is not None for run in runs) == 1


@every_bucket
def test_a_gpu_gives_every_bucket_all_runs(bucket: int) -> None:
    for position in range(3):
        assert runs_of(bucket, position, on_gpu=True) == runs_of(1, 0)


@every_bucket
def test_a_bucket_sees_every_kind_of_call_both_patterns_and_an_out_buffer(bucket: int) -> None:
    runs = all_runs(bucket)
    assert {run.poison for run in runs} >= {None, Pattern.FIRST, Pattern.SECOND}
    assert any(run.out_buffer and run.poison for run in runs)
    # C, which makes probes of the tokens that B leaves plain, is needed where there is one token alone.
    assert {run.call for run in runs} >= ({A, B, C} if bucket <= FULL_RUNS_UP_TO else {A, B})


def test_every_call_of_a_small_bucket_is_seen_poisoned_and_not() -> None:
    runs = runs_of(1, 0)
    for call in (A, B, C):
        assert {run.poison is None for run in runs if run.call == call} == {True, False}


def test_a_default_plan_sees_every_kind_of_token_and_both_patterns() -> None:
    one_token = runs_of(1, 0, thorough=False)
    assert {run.call for run in one_token} == {A, B, C}
    assert {run.poison for run in one_token} == {None, Pattern.FIRST, Pattern.SECOND}
    eight = [runs_of(8, position, thorough=False) for position in range(2)]
    # From two tokens on, B alone holds plain tokens and probes.
    assert all([run.call for run in runs] == [A, B, A] for runs in eight)
    assert [runs[1].poison for runs in eight] == [Pattern.FIRST, Pattern.SECOND]
    for runs in (one_token, *eight):
        assert all(one.call != other.call for one, other in itertools.pairwise(runs))
        assert sum(run.call == A and run.poison is None for run in runs) == 2
        assert any(run.out_buffer for run in runs)
