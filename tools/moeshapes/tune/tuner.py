"""Tuning: the buckets of one shape screened, the best through the full verifier under every use, the fastest kept."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from statistics import fmean

from moeshapes.findings import Place
from moeshapes.kernel_name import parse
from moeshapes.problem import problem_of
from moeshapes.report.speed import BASELINE
from moeshapes.row import Key, TunedRow
from moeshapes.select.choice import Choice, choose
from moeshapes.select.pairing import WHOLE, Candidate, Offer
from moeshapes.select.trial import Bench, Tried, compared_with, plan_of, shipped_as
from moeshapes.tune.budget import Budget, BudgetSpentError
from moeshapes.tune.candidates import Candidates, Pair, candidates_of, is_denied, row_of, timed
from moeshapes.tune.memory import Memory
from moeshapes.tune.screening import Answers, Question, Screener
from moeshapes.tune.search import Search, survivors
from moeshapes.tune.space import Space
from moeshapes.tune.target import Target
from moeshapes.verify.evidence import PASSED
from moeshapes.verify.plan import Planned, Subject
from moeshapes.verify.run import SKIPPED, Verified, run

SOURCE = "tune"
"""What stands for a file where a candidate's place is shown."""

Progress = Callable[[str, int], AbstractContextManager[Callable[[str], None]]]
"""As commands.progress.progress."""


@dataclass(frozen=True)
class Result:
    """What became of a target: a `choice`, or `refused` says why there is none; neither where the budget ended before.

    `stands`: the row that is there is what an earlier run chose, and nothing has changed since.
    """

    target: Target
    choice: Choice | None = None
    refused: str = ""
    stands: TunedRow | None = None


@dataclass
class Tuner:
    """`most` candidates of a bucket go through the verifier, and the row that is there."""

    bench: Bench
    space: Space
    memory: Memory
    budget: Budget
    most: int
    progress: Progress
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def tune(self, targets: Sequence[Target]) -> list[Result]:
        """Tunes buckets of one shape. Those that the budget leaves no time for have no choice."""
        planned = {target.key: self._planned(target) for target in targets}
        settled = [result for target in targets if (result := self._settled(target, planned[target.key]))]
        rest = [target for target in targets if target not in [result.target for result in settled]]
        choices: dict[Key, Choice] = {}
        with suppress(BudgetSpentError):
            choices = self._judged(self._screened(rest, planned)) if rest else {}
        for target in rest:
            if choice := choices.get(target.key):
                self._remember(target, choice, planned[target.key])
        return settled + [Result(target, choices.get(target.key)) for target in rest]

    def _settled(self, target: Target, planned: Planned) -> Result | None:
        """What is known of a target without any work; None where there is work to do."""
        if planned.job is None:
            return Result(target, refused=planned.skipped)
        row, found = self._shipped(target), self.memory.recall(self._choosing(target, planned))
        there = list(_pair(row)) if row else None
        if found is None or there != (found["kept"] or found["before"]):
            return None
        if found["kept"] is None:
            return Result(target, Choice(target.key, None, (), {}))
        return Result(target, stands=row)

    def _remember(self, target: Target, choice: Choice, planned: Planned) -> None:
        row = self._shipped(target)
        kept = _pair(choice.kept.candidate.row) if choice.kept and choice.may_be_written else None
        self.memory.keep(self._choosing(target, planned), {"kept": kept, "before": _pair(row) if row else None})

    def _choosing(self, target: Target, planned: Planned) -> list[object]:
        """What a choice depends on."""
        uses = [problem_of(target.key, declared.use).as_json() for declared in target.declared]
        candidates = [asdict(each) for each in self._candidates(target)]
        key = [target.key.gfx, target.key.cu_num, *target.key.shape.cells()]
        denied = [dict(deny.match) for deny in target.deny]
        return ["choice", key, uses, candidates, denied, self.most, dict(planned.versions)]

    def _candidates(self, target: Target) -> list[Candidates]:
        return candidates_of(self.space, target.key, target.recipe, target.deny)

    def _shipped(self, target: Target) -> TunedRow | None:
        """The row that is there."""
        rows = (row for row in self.bench.shipped if row.is_portable and row.key == target.key and not row.tag)
        return next(rows, None)

    # --- screening

    def _screened(self, targets: Sequence[Target], planned: Mapping[Key, Planned]) -> list[Offer]:
        searches = [self._search(target) for target in targets]
        screener = Screener(self.bench.pool, self.memory, self.budget)

        def answers_to(label: str, steps: Sequence[Sequence[Pair]]) -> list[Answers]:
            questions = [
                Question(planned[target.key], {pair: self._row(target, pair).launch() for pair in pairs})
                for target, pairs in zip(targets, steps, strict=True)
            ]
            with self.progress(label, sum(len(screener.unanswered(question)) for question in questions)) as report:
                return screener.screen(questions, report)

        dims = targets[0].key.shape.dims
        first = answers_to(f"{dims} stage 1", [search.first_step() for search in searches])
        steps = [search.second_step(answers) for search, answers in zip(searches, first, strict=True)]
        second = answers_to(f"{dims} stage 2", steps)
        seen = [{**one, **other} for one, other in zip(first, second, strict=True)]
        return [self._offer(*each, planned[each[0].key]) for each in zip(targets, searches, seen, strict=True)]

    def _search(self, target: Target) -> Search:
        row = self._shipped(target)
        return Search(self._candidates(target), _pair(row) if row else None)

    def _planned(self, target: Target) -> Planned:
        """The verifier's plan of any row of the target, under its first use."""
        candidates = self._candidates(target)
        if not candidates:
            subject = Subject(target.key, target.declared[0].use, None, portable=True)
            return Planned(subject, None, "the space has no candidate for it")
        row = self._row(target, (candidates[0].firsts[0], candidates[0].plain_second))
        return plan_of(shipped_as([row], self.bench.declarations), self.bench)[0]

    def _row(self, target: Target, pair: Pair, us: float = 1.0) -> TunedRow:
        return row_of(target.key, pair, us, Place(SOURCE, 1))

    # --- judging

    def _offer(self, target: Target, search: Search, seen: Answers, planned: Planned) -> Offer:
        """The best candidates, and the row that is there, for which nothing is known to speak against them."""
        without = next((each.us / each.ratio for each in seen.values() if not each.error), 1.0)
        ranked = [(ratio, pair) for ratio, pair in search.ranked(seen) if not _is_denied(target, pair)]
        best = survivors(ranked, self.most, lambda pair: not self._lost(target, pair))
        there = [(ratio, pair) for ratio, pair in ranked if pair == search.shipped]
        rows = [self._row(target, pair, ratio * without) for ratio, pair in dict.fromkeys(best + there)]
        placed = [replace(row, place=Place(SOURCE, next(self._numbers))) for row in rows]
        return Offer(target.key, tuple(Candidate(row, None, WHOLE) for row in placed), _faults(seen))

    def _lost(self, target: Target, pair: Pair) -> bool:
        """Whether an earlier run has seen it fail."""
        row = self._row(target, pair)
        items = plan_of(shipped_as([row], self.bench.declarations), self.bench)
        return any(self.memory.recall(_lost_as(item)) is not None for item in items)

    def _judged(self, offers: Sequence[Offer]) -> dict[Key, Choice]:
        """A choice of each key all of whose candidates were judged before the budget ended."""
        candidates = [(offer.key, candidate) for offer in offers for candidate in offer.candidates]
        rows = shipped_as([candidate.row for _, candidate in candidates], self.bench.declarations)
        planned = plan_of(rows, self.bench)
        found = self._verified(planned)
        unfinished = {item.subject.key for item in planned if _name(item.subject) not in found}
        tried: dict[Key, list[Tried]] = defaultdict(list)
        for (key, candidate), row in zip(candidates, rows, strict=True):
            subjects = [item.subject for item in planned if item.subject.row == row]
            if key not in unfinished:
                tried[key].append(Tried(candidate, tuple(found[_name(subject)] for subject in subjects)))
        finished = [offer for offer in offers if offer.key not in unfinished]
        return {choice.key: _measured(choice) for choice in choose(finished, tried)}

    def _verified(self, planned: Sequence[Planned]) -> dict[_Name, Verified]:
        """What becomes of each row and use until the budget ends. What fails is remembered."""
        items = {_name(item.subject): item for item in planned}
        found = {
            name: Verified(item.subject, SKIPPED, note=item.skipped) for name, item in items.items() if item.job is None
        }
        with self.progress("verify", len(planned) - len(found)) as report:

            def done(verified: Verified) -> None:
                name = _name(verified.subject)
                found[name] = verified
                if verified.status not in PASSED:
                    self.memory.keep(_lost_as(items[name]), {"status": verified.status})
                report(_line(verified))
                self.budget.check()

            with suppress(BudgetSpentError):
                run(planned, self.bench.store, self.bench.pool, self.bench.fresh, done)
        return found


_Name = tuple[TunedRow | None, str]


def _pair(row: TunedRow) -> Pair:
    return row.kernel1, row.kernel2


def _is_denied(target: Target, pair: Pair) -> bool:
    """Whether a row may not name it, such as the default's stage 2 that others were timed with."""
    return any(is_denied(kernel, target.deny) for kernel in map(parse, pair) if kernel)


def _name(subject: Subject) -> _Name:
    return subject.row, subject.use.id


def _lost_as(item: Planned) -> list[str]:
    """The question whose answer is that this fails."""
    return ["lost", item.job.id if item.job else ""]


def _line(verified: Verified) -> str:
    row, status = verified.subject.row, verified.shown_status
    kernels = f"{row.kernel1} + {row.kernel2}" if row else ""
    return f"{status}: {verified.subject.key} {kernels} under {verified.subject.use.id}"


def _faults(seen: Answers) -> Counter[str]:
    """How many candidates do not run or are not plausible, by reason."""
    return Counter(each.error for each in seen.values() if each.error)


def _measured(choice: Choice) -> Choice:
    """The choice with the times that its rows were proven with, in place of the first look's."""
    now = {id(tried): _with_own_time(tried) for tried in choice.tried}
    kept = now[id(choice.kept)] if choice.kept else None
    return replace(choice, kept=kept, tried=tuple(now[id(tried)] for tried in choice.tried))


def _with_own_time(tried: Tried) -> Tried:
    """The mean over its uses and processes."""
    times = [compared.us for verified in tried.verified if (compared := compared_with(verified, BASELINE))]
    if not times:
        return tried
    row = timed(tried.candidate.row, fmean(times))
    return replace(tried, candidate=replace(tried.candidate, row=row))
