from __future__ import annotations

from math import exp, inf, isfinite, log
from pathlib import Path
from typing import Any

import pytest
from scipy import stats  # type: ignore[import-untyped]

from moeshapes.findings import Finding
from moeshapes.report.serving import Arm, Pair, change_over, gpus_of, pair_up
from moeshapes.report.serving_result import read_results
from serving_samples import sglang, vllm, write_lines

Facts = dict[str, Any]


@pytest.fixture
def arms(tmp_path: Path) -> Any:
    def make(before: list[Facts], after: list[Facts], *may_differ: str) -> tuple[list[Pair], list[Finding]]:
        one, other = (
            Arm(name, tuple(read_results(write_lines(tmp_path / f"{name}.jsonl", results))[0]))
            for name, results in (("before", before), ("after", after))
        )
        return pair_up(one, other, may_differ)

    return make


def names(findings: list[Finding]) -> list[str]:
    return [finding.rule.name for finding in findings]


def test_the_change_is_that_of_the_logs_with_students_interval() -> None:
    ratios = [1.05, 1.07, 1.06, 1.09]
    change = change_over(ratios)
    logs = [log(ratio) for ratio in ratios]
    low, high = stats.t.interval(0.95, 3, loc=sum(logs) / 4, scale=stats.sem(logs))
    assert change.centre == pytest.approx(stats.gmean(ratios) - 1)
    assert (change.low, change.high) == pytest.approx((exp(low) - 1, exp(high) - 1))


def test_an_interval_that_is_beyond_all_floats_is_none_of_a_single_round() -> None:
    change = change_over([1e30, 1e-30])
    assert isfinite(change.high)
    assert change.high > 1e300


def test_a_single_round_says_nothing_of_the_noise() -> None:
    change = change_over([1.1])
    assert (change.low, change.high) == (-1.0, inf)


def test_rounds_are_compared_in_pairs(arms: Any) -> None:
    ((pair,), findings) = arms(
        [sglang(3000.0, 20.0), sglang(2000.0, 30.0), sglang(1000.0, 60.0)],
        [sglang(3300.0, 18.0), sglang(2200.0, 27.0), sglang(1100.0, 54.0)],
    )
    assert findings == []
    assert pair.throughput_change.centre == pytest.approx(0.1)
    assert pair.throughput_change.half_width == pytest.approx(0, abs=1e-9)
    assert pair.tpot_change.centre == pytest.approx(-0.1)
    assert (pair.shape, gpus_of([pair])) == ("1024/512, 16 at once", 4)


def test_shapes_are_told_apart_by_lengths_and_concurrency(arms: Any) -> None:
    rounds = [sglang(1.0), sglang(1.0, max_concurrency=32), sglang(1.0, random_input_len=8192)] * 2
    pairs, findings = arms(rounds, rounds)
    assert findings == []
    assert [pair.lengths for pair in pairs] == [(1024, 512, 16), (1024, 512, 32), (8192, 512, 16)]


def test_mean_lengths_of_a_drawn_data_set_are_one_shape(arms: Any) -> None:
    few, many = vllm(1.0), vllm(1.0, total_input_tokens=64 * 1030)
    pairs, findings = arms([few, many], [many, few])
    assert (len(pairs), findings) == (1, [])


def test_settings_that_differ_are_named_and_the_shape_is_refused(arms: Any) -> None:
    other = sglang(1.0, random_range_ratio=0.5, server_info={"tp_size": 4, "version": "0.5.22"})
    pairs, findings = arms([sglang(1.0)] * 2, [sglang(1.0), other])
    assert pairs == []
    assert set(names(findings)) == {"settings-differ"}
    said = {finding.message for finding in findings}
    assert any("`random_range_ratio` is 0.5, but 1.0 in " in message for message in said)
    assert any("`server_info.version` is 0.5.22, but 0.5.23 in " in message for message in said)
    assert all(finding.place.file.endswith("after.jsonl") and finding.place.line == 2 for finding in findings)


def test_what_the_comparison_is_about_may_differ(arms: Any) -> None:
    info = {**sglang(1.0)["server_info"], "moe_runner_backend": "aiter"}
    changed = [sglang(1.0, server_info=info)] * 2
    assert names(arms([sglang(1.0)] * 2, changed)[1]) == ["settings-differ"]
    assert arms([sglang(1.0)] * 2, changed, "server_info.moe_runner_backend")[1] == []


def test_fewer_requests_are_another_setting(arms: Any) -> None:
    assert names(arms([sglang(1.0)] * 2, [sglang(1.0, completed=32)] * 2)[1]) == ["settings-differ"]


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 3), (2, 0), (0, 2)])
def test_missing_rounds_are_found(arms: Any, before: int, after: int) -> None:
    both = [sglang(1.0, max_concurrency=1)] * 2
    pairs, findings = arms([*both, *[sglang(1.0)] * before], [*both, *[sglang(1.0)] * after])
    assert len(pairs) == 1
    assert names(findings) == ["rounds-differ"]
    assert "1024/512, 16 at once: " in findings[0].message


def test_one_round_is_few(arms: Any) -> None:
    assert names(arms([sglang(1.0)], [sglang(1.0)])[1]) == ["few-rounds"]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [("13", "24", []), ("11", "11", []), ("12", "34", ["not-interleaved"]), ("34", "12", ["not-interleaved"])],
)
def test_rounds_that_were_not_interleaved_are_found(arms: Any, before: str, after: str, found: list[str]) -> None:
    one, other = ([vllm(1.0, date=f"20261130-04000{second}") for second in each] for each in (before, after))
    assert names(arms(one, other)[1]) == found


def test_results_that_do_not_tell_their_gpus(arms: Any) -> None:
    (pairs, _) = arms([vllm(1.0)] * 2, [vllm(1.0)] * 2)
    assert gpus_of(pairs) is None
    assert gpus_of([]) == 1
