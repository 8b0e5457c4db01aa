"""Screening: about how fast each candidate is, by a first look at many of them a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from moeshapes.findings import printable
from moeshapes.record import digest
from moeshapes.tune.budget import Budget
from moeshapes.tune.candidates import Pair
from moeshapes.tune.memory import Memory
from moeshapes.verify.job import SCREEN, Job
from moeshapes.verify.plan import Planned
from moeshapes.verify.pool import Outcome, Pool

IN_A_JOB = 16
"""Candidates of a job: few enough that little is lost with one, many enough that its first timing costs little."""
_LONGEST_ERROR = 300

Launch = Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """What a first look shows: µs of a call and their share of what runs without a row, or an error."""

    us: float = 0.0
    ratio: float = 0.0
    error: str = ""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Seen:
        return cls(found.get("us", 0.0), found.get("ratio", 0.0), found.get("error", ""))


@dataclass(frozen=True)
class Question:
    """What is to be screened for one bucket. `planned` is the verifier's of any of its rows."""

    planned: Planned
    pairs: Mapping[Pair, Launch]

    @property
    def job(self) -> Job:
        assert self.planned.job is not None
        return self.planned.job

    def about(self, launch: Launch) -> list[Any]:
        """What an answer depends on."""
        job = self.job
        return ["screen", job.problem.as_json(), dict(launch), job.token, job.gpu, dict(self.planned.versions)]


Answers = dict[Pair, Seen]


@dataclass(frozen=True)
class Screener:
    """Screens by the pool's workers whatever is not remembered, until the budget ends."""

    pool: Pool
    memory: Memory
    budget: Budget

    def screen(self, questions: Sequence[Question], report: Callable[[str], None]) -> list[Answers]:
        """Answers to each question. `report` has a line about each pair that is run.

        Raises BudgetSpentError where no time is left; what was answered until then is remembered.
        """
        asked = [(job, question) for question in questions for job in self._jobs(question)]
        of_job = {job.id: question for job, question in asked}
        waiting = [job for job, _ in asked]
        while waiting:
            self.budget.check()
            parts: list[Job] = []
            with closing(self.pool.run(waiting)) as outcomes:
                for outcome in outcomes:
                    question = of_job[outcome.job.id]
                    halves = list(self._take(outcome, question, report))
                    of_job |= {half.id: question for half in halves}
                    parts += halves
                    self.budget.check()
            waiting = parts
        return [self._remembered(question) for question in questions]

    def unanswered(self, question: Question) -> list[Launch]:
        """What would be run."""
        return [launch for launch in question.pairs.values() if self.memory.recall(question.about(launch)) is None]

    def _jobs(self, question: Question) -> Iterator[Job]:
        launches = self.unanswered(question)
        for first in range(0, len(launches), IN_A_JOB):
            yield _job(question, launches[first : first + IN_A_JOB])

    def _take(self, outcome: Outcome, question: Question, report: Callable[[str], None]) -> Iterator[Job]:
        """Remembers what a job answered. Yields halves of one that broke down, until one candidate is left."""
        launches = outcome.job.candidates
        if outcome.result is None and len(launches) > 1:
            middle = len(launches) // 2
            yield from (_job(question, part) for part in (launches[:middle], launches[middle:]))
            return
        for launch, found in zip(launches, _found(outcome), strict=True):
            self.memory.keep(question.about(launch), found)
            said = found.get("error") or f"{found['us']:.1f} µs, × {found['ratio']:.3f}"
            names = f"{launch['kernelName1']} + {launch['kernelName2']}"
            report(printable(f"{names} at {question.job.token} tokens: {said}"))

    def _remembered(self, question: Question) -> Answers:
        answers = ((pair, self.memory.recall(question.about(launch))) for pair, launch in question.pairs.items())
        return {pair: Seen.of(found) for pair, found in answers if found is not None}


def _job(question: Question, launches: Sequence[Launch]) -> Job:
    candidates = tuple(dict(launch) for launch in launches)
    name = digest([question.about(launch) for launch in launches])
    plain = replace(question.job, id=name, launch=None, speed=False, replaced=None)
    return replace(plain, task=SCREEN, candidates=candidates)


def _found(outcome: Outcome) -> Iterator[dict[str, Any]]:
    """By candidate `us` and `ratio`, or `error` in one line."""
    if outcome.result is None:
        yield {"error": _one_line(outcome.error)}
        return
    without = outcome.result["us"]
    for each in outcome.result["candidates"]:
        fault = each.get("error")
        yield {"error": _one_line(fault)} if fault else {"us": each["us"], "ratio": each["us"] / without}


def _one_line(error: str) -> str:
    return (error.strip().splitlines() or ["unknown"])[0][:_LONGEST_ERROR]
