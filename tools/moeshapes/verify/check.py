"""Verifies one job on one device: runs the arm at each token count, on clean and poisoned memory, and judges them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from moeshapes.arithmetic import Arithmetic, Departure, arithmetic_of, default_arithmetic
from moeshapes.backends.base import Arm, Backend, Prepared
from moeshapes.problem import Problem
from moeshapes.verify.capture import CapturedCall, give_back_memory
from moeshapes.verify.job import Job
from moeshapes.verify.numerics import PROTOCOL, Judgement, Target, by_token, judge, worst_of
from moeshapes.verify.poison import Pattern, poisoned
from moeshapes.verify.runs import REPLAYS, A, Replays, Run
from moeshapes.verify.source import layer_of
from moeshapes.verify.trial import Trial, runs_at, trials_of
from moeshapes.workload import Call, Layer, draw_calls

_SENTINEL = 1.0
_ROWS_AFTER = 3
"""Rows past the last token in an out buffer, which must come back as they were."""
_BASELINE_RUNS = 3


@dataclass
class LayerCache:
    """The last layer that was drawn or read, and prepared, since neighbouring jobs share it."""

    key: str = ""
    layer: Layer | None = None
    prepared: Prepared | None = None

    def get(self, job: Job, backend: Backend) -> tuple[Layer, Prepared]:
        if self.key != job.layer_key or self.layer is None or self.prepared is None:
            self.layer = self.prepared = None
            self.layer = layer_of(job)
            self.prepared = backend.prepare(self.layer)
            self.key = job.layer_key
        return self.layer, self.prepared


@dataclass
class _Seen:
    """What the runs of one token count showed."""

    judgements: list[Judgement] = field(default_factory=list)
    repeats: list[Tensor] = field(default_factory=list)
    overwritten: bool = False

    def failures(self) -> list[tuple[int, Judgement]]:
        """With their numbers, from 1."""
        return [(number, each) for number, each in enumerate(self.judgements, start=1) if not each.passed]


def check(
    job: Job,
    backend: Backend,
    cache: LayerCache,
    progress: Callable[[], None] = lambda: None,
    ready: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """The job's result: `verdict` (`pass` or `fail`), `reasons` for a failure, `numerics` and `launched`.

    `ready` is called once the layer is drawn and the kernels are built, `progress` with every run. Errors of the
    backend are raised, and are the worker's to report.
    """
    layer, prepared = cache.get(job, backend)
    arithmetic = _arithmetic(job)
    arm = prepared.arm(job.launch, job.token, job.lookup)
    if job.gpu:
        _build(arm, draw_calls(layer, job.counts[0], job.seed)[A])
    ready()
    probed: set[tuple[int, int]] = set()
    counts, reasons = {}, []
    stages: dict[str, float] = {}
    baseline = None
    for position, trial in enumerate(trials_of(job, layer, arithmetic)):
        seen = _run_all(arm, runs_at(job, position), trial, progress)
        if job.gpu and job.thorough:
            _replay_all(arm, REPLAYS, trial, seen, progress)
        counts[str(trial.count)] = _count_summary(seen, trial.targets)
        reasons += [f"at {trial.count} tokens: {reason}" for reason in _reasons(seen)]
        probed.update(pair for call in trial.calls for pair in call.probes)
        if position == 0:
            stages = _stages(arm, trial.sample, trial.targets[A], layer.problem.topk, arithmetic)
            baseline = _baseline(job, prepared, arm, trial.calls[A], trial.baseline)
    reasons += [f"{name} alone is off: {share:.3g} of its limit" for name, share in stages.items() if not share <= 1]
    numerics: dict[str, Any] = {
        "protocol": PROTOCOL,
        "compared_with": "modelled" if arithmetic.modelled else "unmodelled",
        "arithmetic": arithmetic.as_json(),
        "counts": counts,
        "stages": stages,
        "probes": _probe_share(layer.problem, len(probed)),
        "weight_sets": len(layer.w1),
        **({"weights": dict(layer.origin)} if layer.origin else {}),
        "baseline": baseline,
    }
    if reasons:
        reasons += [departure.value for departure in arithmetic.departures if _matters(departure, layer.problem)]
    verdict = "fail" if reasons else "pass"
    return {"verdict": verdict, "reasons": reasons, "numerics": _finite(numerics), "launched": arm.launched()}


def _build(arm: Arm, call: Call) -> None:
    """Runs the arm once, for what it compiles and loads on the way."""
    with arm.activate():
        arm.run(call)
    torch.cuda.synchronize()


def _arithmetic(job: Job) -> Arithmetic:
    recipe = job.problem.recipe
    return default_arithmetic(recipe, job.token) if job.launch is None else arithmetic_of(job.launch, recipe)


def _matters(departure: Departure, problem: Problem) -> bool:
    """Whether the layer has what the kernel ignores."""
    has = {
        Departure.LIMIT_IGNORED: bool(problem.activation.limit),
        Departure.BIAS_DROPPED: problem.bias,
        Departure.ALWAYS_SILU: problem.activation.kind != "silu",
    }
    return has[departure]


def _run_all(arm: Arm, runs: Sequence[Run], trial: Trial, progress: Callable[[], None]) -> _Seen:
    seen = _Seen()
    for run in runs:
        output, intact = _run_one(arm, run, trial.calls[run.call])
        seen.overwritten |= not intact
        _judge(output, run.call, run.poison, trial, seen)
        progress()
    return seen


def _replay_all(arm: Arm, captured: Sequence[Replays], trial: Trial, seen: _Seen, progress: Callable[[], None]) -> None:
    """Adds what graphs of the arm show, their memory poisoned at every replay or never."""
    for replays in captured:
        graph = CapturedCall(arm, trial.calls[A], replays.poison)
        for index in replays.calls:
            _judge(graph.run(trial.calls[index]), index, replays.poison, trial, seen)
        del graph
        progress()
    give_back_memory()


def _judge(output: Tensor, index: int, poison: Pattern | None, trial: Trial, seen: _Seen) -> None:
    target = trial.targets[index]
    seen.judgements.append(judge(output, target))
    if poison is None and index == A:
        seen.repeats.append(_logical(output, target))


def _run_one(arm: Arm, run: Run, call: Call) -> tuple[Tensor, bool]:
    """The output, and whether rows past the last token are as they were."""
    out = None
    if run.out_buffer:
        shape = (call.tokens + _ROWS_AFTER, call.activations.shape[1])
        out = torch.full(shape, _SENTINEL, dtype=torch.bfloat16, device=call.activations.device)
        out[: call.tokens] = math.nan
    with arm.activate(), poisoned(run.poison):
        output = arm.run(call, out)
    # What a caller reads is its own buffer, whatever was returned.
    output = output if out is None else out
    intact = out is None or bool((out[call.tokens :] == _SENTINEL).all())
    return output[: call.tokens].clone(), intact


def _reasons(seen: _Seen) -> list[str]:
    reasons = []
    failures = seen.failures()
    if failures:
        runs = ", ".join(str(number) for number, _ in failures)
        worst = worst_of([judgement for _, judgement in failures])
        what = f"{worst.bad_values} NaN or Inf, first at {worst.where}" if worst.bad_values else _how_far(worst)
        reasons.append(f"{what} (runs {runs} of {len(seen.judgements)})")
    if seen.overwritten:
        reasons.append("rows past the last token were written")
    return reasons


def _how_far(worst: Judgement) -> str:
    return f"token {worst.worst_token} is off by {worst.worst:.3g} of its limit"


def _count_summary(seen: _Seen, targets: Sequence[Target]) -> dict[str, Any]:
    judgements = seen.judgements
    worst = worst_of(judgements)
    first = seen.repeats[0]
    return {
        "runs": len(judgements),
        "over_limit": max(j.over_limit for j in judgements),
        "block_over_limit": max(j.block_over_limit for j in judgements),
        "worst_token": worst.worst_token,
        "bad_values": max(j.bad_values for j in judgements),
        "floor": max(float(target.floor.max()) for target in targets),
        "deterministic": all(bitwise_equal(first, other) for other in seen.repeats[1:]),
        "spread": max((_spread(first, other, targets[A]) for other in seen.repeats[1:]), default=0.0),
    }


def _logical(output: Tensor, target: Target) -> Tensor:
    """Without the padded columns, which kernels may leave unwritten."""
    return output[:, : target.centre.shape[1]]


def bitwise_equal(one: Tensor, other: Tensor) -> bool:
    return bool((one.view(torch.uint8) == other.view(torch.uint8)).all())


def _spread(one: Tensor, other: Tensor, target: Target) -> float:
    """How far two outputs of the same call are apart, as a share of the limit: NaN-free only where both are."""
    difference = (target.sampled(one).double() - target.sampled(other).double()).norm(dim=1)
    return float((difference / target.allowance).masked_fill(difference == 0, 0.0).max())


def _stages(arm: Arm, call: Call, target: Target, topk: int, arithmetic: Arithmetic) -> dict[str, float]:
    """Each stage alone, as a share of its limit; empty where the backend cannot, or the arithmetic is not modelled."""
    stages = arm.stages()
    if stages is None or not arithmetic.modelled:
        return {}
    intermediate = target.modelled.intermediate
    with arm.activate():
        hidden, output = stages.first(call), stages.second(call, intermediate)
    first = by_token(hidden.double() - intermediate, topk).norm(dim=1)
    first_share = (first / target.intermediate_limit(topk)).nan_to_num(nan=math.inf).masked_fill(first == 0, 0.0)
    second = judge(output, replace(target, rows=None))
    return {"stage 1": float(first_share.max()), "stage 2": second.worst}


def _probe_share(problem: Problem, probed: int) -> dict[str, float]:
    pairs = problem.expert * -(-problem.logical_model_dim // problem.k_block)
    return {"probed": probed, "pairs": pairs, "share": probed / pairs}


def _baseline(job: Job, prepared: Prepared, arm: Arm, call: Call, target: Target | None) -> dict[str, Any] | None:
    """What runs without the row, judged likewise; None for a default plan, which is that already."""
    if target is None:
        return None
    baseline = prepared.arm(None, job.token, job.lookup)
    with baseline.activate():
        first, *others = (_logical(baseline.run(call), target) for _ in range(_BASELINE_RUNS))
    with arm.activate():
        with_row = _logical(arm.run(call), target)
    return {
        "over_limit": judge(first, target).worst,
        "launched": baseline.launched(),
        "deterministic": all(bitwise_equal(first, other) for other in others),
        "bitwise_equal": bitwise_equal(first, with_row),
    }


def _finite(value: Any) -> Any:
    """Infinite shares as text: JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "inf"
    return value
