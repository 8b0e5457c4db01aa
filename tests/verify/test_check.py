"""A job's verification: what it runs, what it reports and what it lets nobody get away with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs import job, launch, problem
from moeshapes.backends.base import Stages
from moeshapes.backends.emulate import EmulateBackend, EmulatedArm, EmulatedLayer
from moeshapes.verify.check import LayerCache, bitwise_equal, check
from moeshapes.verify.job import Job
from moeshapes.verify.lookup import NO_LOOKUP, Lookup
from moeshapes.verify.runs import runs_of
from moeshapes.workload import Call

Change = Callable[[Tensor, Call, int, Tensor | None], Tensor]
"""Makes something else of an honest output: given that, the call, the number of the run and the out buffer."""


class ChangingArm(EmulatedArm):
    """An honest arm whose outputs are changed on their way out."""

    change: Change
    runs = 0

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        self.runs += 1
        return self.change(super().run(call, out), call, self.runs, out)


class ChangingLayer(EmulatedLayer):
    change: Change

    def arm(self, launch: Mapping[str, Any] | None, token: int, lookup: Lookup = NO_LOOKUP) -> ChangingArm:
        honest = super().arm(launch, token)
        arm = ChangingArm(self, honest.arithmetic)
        arm.change = self.change
        return arm


class ChangingBackend(EmulateBackend):
    def __init__(self, change: Change) -> None:
        self.change = change

    def prepare(self, layer: Any) -> ChangingLayer:
        prepared = ChangingLayer(layer)
        prepared.change = self.change
        return prepared


def honestly(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
    return output


def result_of(change: Change = honestly, what: Job | None = None) -> dict[str, Any]:
    with torch.inference_mode():
        return check(what or job(), ChangingBackend(change), LayerCache())


def only_reason(result: Mapping[str, Any]) -> str:
    assert result["verdict"] == "fail"
    (reason,) = result["reasons"]
    return str(reason)


def test_an_honest_backend_passes_and_says_what_was_seen() -> None:
    result = result_of(what=job(token=8, counts=(8, 5, 6)))
    assert (result["verdict"], result["reasons"]) == ("pass", [])
    numerics = result["numerics"]
    assert list(numerics["counts"]) == ["8", "5", "6"]
    for count in numerics["counts"].values():
        assert count["runs"] == len(runs_of(8, 0))
        assert 0 < count["over_limit"] <= 1
        assert 0 < count["floor"] < 1
        assert (count["bad_values"], count["deterministic"], count["spread"]) == (0, True, 0)
    assert set(numerics["stages"]) == {"stage 1", "stage 2"}
    assert numerics["probes"]["pairs"] == 8 * 256 // 32
    assert 0 < numerics["probes"]["probed"] <= 2 * (8 + 5 + 6)
    assert numerics["probes"]["share"] == numerics["probes"]["probed"] / numerics["probes"]["pairs"]
    assert numerics["baseline"] is None
    assert result["launched"]


def test_it_runs_what_the_runs_say_and_reports_each() -> None:
    steps, seen = list[int](), list[int]()

    def note(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        seen.append(call.tokens)
        return output

    with torch.inference_mode():
        check(job(token=8, counts=(8, 5)), ChangingBackend(note), LayerCache(), lambda: steps.append(1))
    assert seen == [8] * 11 + [5] * 11
    assert len(steps) == 22


def test_a_row_is_compared_with_what_runs_without_it() -> None:
    same = result_of(what=job("a16w4", problem("a16w4"), launch=launch(block_m=32)))
    baseline = same["numerics"]["baseline"]
    assert same["numerics"]["compared_with"] == "unmodelled"
    assert baseline["bitwise_equal"]
    assert baseline["deterministic"]
    assert 0 < baseline["over_limit"] <= 1
    assert baseline["launched"]


@pytest.mark.parametrize("run", range(1, 12))
def test_one_nan_in_one_run_fails_whichever_run(run: int) -> None:
    def plant(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        if number == run:
            output[2, 33] = math.nan
        return output

    reason = only_reason(result_of(plant))
    assert reason == f"at 4 tokens: 1 NaN or Inf, first at token 2, column 33 (runs {run} of 11)"


def test_a_token_that_is_off_fails_by_name_and_share() -> None:
    def plant(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        output[1] *= 1.1
        return output

    result = result_of(plant)
    assert only_reason(result).startswith("at 4 tokens: token 1 is off by ")
    count = result["numerics"]["counts"]["4"]
    assert count["worst_token"] == 1
    assert count["over_limit"] > 5


def test_every_token_count_is_judged() -> None:
    def plant(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        return output * 1.1 if call.tokens == 5 else output

    reasons = result_of(plant, job(token=8, counts=(8, 5, 6)))["reasons"]
    assert [reason[:13] for reason in reasons] == ["at 5 tokens: "]


def test_rows_past_the_last_token_must_stay() -> None:
    def plant(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        if out is not None:
            out[call.tokens, 0] = 0
        return output

    assert only_reason(result_of(plant)) == "at 4 tokens: rows past the last token were written"


def test_an_out_buffer_that_is_left_alone_is_caught() -> None:
    def plant(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        mine = output.clone()
        if out is not None:
            out[: call.tokens] = math.nan
        return mine

    reason = only_reason(result_of(plant))
    assert "NaN or Inf" in reason
    assert reason.endswith("(runs 9 of 11)")


def test_a_row_that_is_not_deterministic_passes_within_the_limit_and_is_reported() -> None:
    def plant(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        return output * (1 + 2**-8 * (number % 4 == 1))

    result = result_of(plant)
    count = result["numerics"]["counts"]["4"]
    assert result["verdict"] == "pass"
    assert not count["deterministic"]
    assert 0 < count["spread"] < 1


def test_a_baseline_that_is_not_deterministic_is_reported() -> None:
    def plant(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        return output * (1 + 2**-8 * (number == 1))

    result = result_of(plant, job(launch=launch(block_m=32)))
    assert result["verdict"] == "pass"
    assert not result["numerics"]["baseline"]["deterministic"]


def test_padded_columns_may_hold_anything() -> None:
    def plant(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        output[: call.tokens, -64:] = math.nan if number % 2 else number
        return output

    padded = job(what=problem(hidden_pad=64), launch=launch(block_m=32))
    result = result_of(plant, padded)
    assert result["verdict"] == "pass", result["reasons"]
    assert result["numerics"]["counts"]["4"]["deterministic"]
    assert result["numerics"]["baseline"]["bitwise_equal"]


def test_nan_that_is_the_same_every_time_is_deterministic() -> None:
    one = torch.tensor([[math.nan, 1.0]], dtype=torch.bfloat16)
    assert bitwise_equal(one, one.clone())
    assert not bitwise_equal(one, torch.tensor([[math.nan, -0.0]], dtype=torch.bfloat16))
    assert not bitwise_equal(torch.zeros(1, 2), -torch.zeros(1, 2))


class WrongStages:
    """Stages of an honest arm, one of them off by a tenth in one token."""

    def __init__(self, stages: Stages, wrong: str, by: float) -> None:
        self.stages, self.wrong, self.by = stages, wrong, by

    def first(self, call: Call) -> Tensor:
        found = self.stages.first(call)
        if self.wrong == "stage 1":
            found[:3] *= self.by
        return found

    def second(self, call: Call, intermediate: Tensor) -> Tensor:
        found = self.stages.second(call, intermediate)
        if self.wrong == "stage 2":
            found[0] *= self.by
        return found


@pytest.mark.parametrize("by", [1.1, math.nan])
@pytest.mark.parametrize("stage", ["stage 1", "stage 2"])
def test_a_stage_that_is_off_alone_fails(stage: str, by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = EmulatedArm.stages
    monkeypatch.setattr(EmulatedArm, "stages", lambda arm: WrongStages(honest(arm), stage, by))
    result = result_of()
    assert only_reason(result).startswith(f"{stage} alone is off: ")
    assert result["numerics"]["stages"][stage] == ("inf" if math.isnan(by) else pytest.approx(10.0, rel=0.99))


def test_a_backend_without_stages_is_judged_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatedArm, "stages", lambda arm: None)
    result = result_of()
    assert result["verdict"] == "pass"
    assert result["numerics"]["stages"] == {}


def test_a_result_is_plain_json_even_where_shares_are_infinite() -> None:
    def plant(output: Tensor, call: Call, number: int, out: Tensor | None) -> Tensor:
        return output * math.nan

    result = result_of(plant)
    assert json.dumps(result, allow_nan=False)
    assert result["numerics"]["counts"]["4"]["over_limit"] == "inf"


def test_the_same_job_gives_the_same_figures() -> None:
    assert result_of() == result_of()
    assert result_of(what=job(seed=2))["numerics"] != result_of()["numerics"]


def test_jobs_of_one_layer_prepare_it_once() -> None:
    prepared = list[object]()

    class Counting(EmulateBackend):
        def prepare(self, layer: Any) -> EmulatedLayer:
            prepared.append(layer)
            return super().prepare(layer)

    cache, backend = LayerCache(), Counting()
    with torch.inference_mode():
        for each in (job("a"), job("b", token=8, counts=(8,)), job("c", seed=2), job("d", seed=2)):
            check(each, backend, cache)
    assert len(prepared) == 2


def test_a_layer_that_cannot_be_drawn_leaves_no_other_in_its_place() -> None:
    cache, backend = LayerCache(), EmulateBackend()
    with torch.inference_mode():
        check(job("a"), backend, cache)
        with pytest.raises(ValueError, match="no multiple of the scale block"):
            check(job("b", problem(inter_dim=48)), backend, cache)
        assert check(job("c"), backend, cache)["verdict"] == "pass"
