"""A pool whose answers are made up, and what such answers and their records look like."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator

from moeshapes.verify.job import Job
from moeshapes.verify.pool import Outcome, Pool

Answer = Callable[[Job], dict[str, Any] | str]
"""A result, or the text of an error."""

SCHEMA = json.loads((resources.files("moeshapes") / "schema" / "record.schema.json").read_text("utf-8"))


class AnsweringPool(Pool):
    """A pool without processes, whose answers are made up; notes the jobs that it is given."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(1, 1, 1.0)
        self.answer = answer
        self.asked = list[str]()

    def run(self, jobs: Sequence[Job], step: Callable[[], None] = lambda: None) -> Generator[Outcome, None, None]:
        for job in reversed(jobs):
            self.asked.append(job.id)
            answer = self.answer(job)
            yield Outcome(job, None, answer) if isinstance(answer, str) else Outcome(job, answer)


def result(job: Job, verdict: str = "pass") -> dict[str, Any]:
    """What a worker says of a job: as much as a record needs."""
    count = {"runs": 3, "over_limit": 0.5, "block_over_limit": 0.25, "worst_token": 0, "bad_values": 0, "floor": 0.1}
    arithmetic = {"block_m": 16, "intermediate_from": "fp32", "fused_scale": False, "combine": "atomic"}
    baseline = {"over_limit": 0.5, "launched": ["emulated"], "bitwise_equal": False}
    return {
        "verdict": verdict,
        "reasons": [] if verdict == "pass" else ["off"],
        "numerics": {
            "protocol": 1,
            "compared_with": "modelled",
            "arithmetic": {**arithmetic, "slot_fp8_block": 0, "modelled": True, "departures": []},
            "counts": {str(n): {**count, "deterministic": True, "spread": 0.0} for n in job.counts},
            "stages": {},
            "probes": {"probed": 1, "pairs": 2, "share": 0.5},
            "weight_sets": 8,
            "baseline": None if job.launch is None else baseline,
        },
        "launched": ["emulated"],
        "emulated": True,
        "device": {"kind": "cpu"},
    }


def always(verdict: str) -> Answer:
    return lambda job: result(job, verdict)


def errors(record: object) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(record)]
