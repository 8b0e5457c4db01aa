"""Verdicts: what a record means for a row that claims to be right under a use, beside the record of the base."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from moeshapes.claim import Claim
from moeshapes.findings import Finding
from moeshapes.gate.policy import Policy
from moeshapes.report.speed import BASELINE, REPLACED, Comparison
from moeshapes.rule import Rule, Severity
from moeshapes.statement import FAIL, PROVEN, Statement

FAILED = Rule(
    "MOE502", "failed-row", Severity.ERROR,
    what="The record of a row says that it failed: NaN or Inf, an unwritten column, or an error over the limit.",
    why="Who serves the shape would get wrong results.",
    fix="Take other kernels for the row or remove it, and verify again.",
)  # fmt: skip
BELOW_POLICY = Rule(
    "MOE503", "below-policy", Severity.ERROR,
    what="The record of a new or changed row passed, but not by what policy.yaml asks.",
    why="The repository asks more of new rows than the verifier does by itself.",
    fix="Verify the row as the policy asks.",
)  # fmt: skip
LESS_ACCURATE = Rule(
    "MOE504", "less-accurate", Severity.ERROR,
    what="A row's worst token is further off than the base's record says, by more than the policy's margin.",
    why="It is within the limit still; a step towards it is a change that somebody must want.",
    fix="Take kernels that are as accurate as the ones that were there.",
)  # fmt: skip
DETERMINISM_LOST = Rule(
    "MOE505", "determinism-lost", Severity.ERROR,
    what="A row gives other bits from run to run, and the base's record says that it gave the same.",
    why="Whoever debugs, or compares runs, relied on it.",
    fix="Take kernels that add in a fixed order: `reduce` instead of `atomic`.",
)  # fmt: skip
SLOWER = Rule(
    "MOE506", "slower-row", Severity.ERROR,
    what="A new or changed row is slower than what runs without it, or than the row that it replaces.",
    why="Both were timed in one process, in turn: it is the row and not the day.",
    fix="Keep the row that was there, or leave the bucket out.",
)  # fmt: skip
SLOWER_ALLOWED = Rule(
    "MOE507", "slower-row-allowed", Severity.WARNING,
    what="A row is slower, and policy.yaml lets that pass, or it was there before it was timed.",
    why="Somebody should know why it is there.",
    fix="Tune the shape again.",
)  # fmt: skip
OLD_ROW_FAILS = Rule(
    "MOE514", "old-row-fails", Severity.WARNING,
    what="The first record of a row that was there before says that it fails.",
    why="It was wrong before this change; now it is known.",
    fix="Replace the row or remove it.",
)  # fmt: skip

_SHOWN = 3
_LONGEST = 160
"""Reasons that a finding quotes, and characters of each: a record comes from a pull request."""


@dataclass(frozen=True)
class Bench:
    """What a verdict goes by: the policy, the day, and the branch that the base is of."""

    policy: Policy
    today: date
    base: str


def of_new_row(
    claim: Claim, said: Statement, before: Statement | None, bench: Bench, replaces: bool
) -> Iterator[Finding]:
    """What speaks against a row whose launch is new. Emulation speaks neither for nor against it.

    `before` is of the row that it replaces, if it does, under the same use.
    """
    if said.status == FAIL:
        yield _finding(FAILED, claim, bench, f"{_why_failed(said)}{_as_it_was(before, bench)}")
    elif said.status == PROVEN:
        shortcomings = _shortcomings(said, bench, replaces)
        yield from (_finding(BELOW_POLICY, claim, bench, shortcoming) for shortcoming in shortcomings)
        rule = SLOWER if bench.policy.slower_blocks else SLOWER_ALLOWED
        yield from (_finding(rule, claim, bench, how) for how in _slower(said, bench.policy))
        yield from _worse(claim, said, before, bench)


def of_old_row(claim: Claim, said: Statement, before: Statement | None, bench: Bench) -> Iterator[Finding]:
    """What a record that changed says against a row that launches what it did. `before` is the base's record of it."""
    if said.status == FAIL:
        if before is None:
            yield _finding(OLD_ROW_FAILS, claim, bench, _why_failed(said))
        elif before.status != FAIL:
            yield _finding(FAILED, claim, bench, f"{_why_failed(said)}{_as_it_was(before, bench)}")
    elif said.status == PROVEN:
        yield from (_finding(SLOWER_ALLOWED, claim, bench, how) for how in _slower(said, bench.policy))
        yield from _worse(claim, said, before, bench)


def _worse(claim: Claim, said: Statement, before: Statement | None, bench: Bench) -> Iterator[Finding]:
    if before is None or before.status != PROVEN:
        return
    further = said.over_limit - before.over_limit
    if said.limit == before.limit and further > bench.policy.accuracy_margin:
        message = f"the worst token is at {said.over_limit:.2f} of the limit, and at {before.over_limit:.2f}"
        margin = f"the policy's margin is {bench.policy.accuracy_margin:g}"
        yield _finding(LESS_ACCURATE, claim, bench, f"{message} in {bench.base}; {margin}")
    lost = [tokens for tokens in said.not_deterministic if tokens not in before.not_deterministic]
    if lost:
        yield _finding(DETERMINISM_LOST, claim, bench, f"not deterministic at {_tokens(lost)}, in {bench.base} it was")


def _shortcomings(said: Statement, bench: Bench, replaces: bool) -> Iterator[str]:
    policy = bench.policy
    if said.numerics_protocol < policy.numerics_protocol:
        yield f"judged by protocol {said.numerics_protocol}, the policy asks for {policy.numerics_protocol}"
    if said.over_limit > policy.max_over_limit:
        yield f"the worst token is at {said.over_limit:.2f} of the limit, the policy allows {policy.max_over_limit:g}"
    if policy.determinism_required and said.not_deterministic:
        yield f"not deterministic at {_tokens(said.not_deterministic)}, which the policy requires"
    if said.aiter and not policy.serves(said.aiter):
        yield f"made with AITER {said.aiter[:_LONGEST]}, the policy names {', '.join(policy.aiter_commits)}"
    yield from _wrong_age(said, bench)
    if policy.speed_required:
        yield from _untimed(said, policy, replaces)


def _wrong_age(said: Statement, bench: Bench) -> Iterator[str]:
    age, oldest = (bench.today - said.judged_at().date()).days, bench.policy.max_age_days
    if oldest is not None and age > oldest:
        yield f"{age} days old, the policy allows {oldest}"
    if oldest is not None and age < -1:  # a day begins somewhere before it does here
        yield f"made {-age} days from now"


def _untimed(said: Statement, policy: Policy, replaces: bool) -> Iterator[str]:
    speed = said.speed(policy.speed_protocol)
    for other in (BASELINE, *([REPLACED] if replaces else [])):
        if speed is None or speed.against(other) is None:
            yield f"not timed against {_ARMS[other]}, which the policy requires"


_ARMS = {BASELINE: "what runs without it", REPLACED: "the row that it replaces"}


def _slower(said: Statement, policy: Policy) -> Iterator[str]:
    speed = said.speed(policy.speed_protocol)
    for comparison in speed.comparisons if speed else ():
        if comparison.verdict == "slower":
            yield f"{_change(comparison)} slower than {_ARMS[comparison.against]}"


def _change(comparison: Comparison) -> str:
    change = comparison.change
    return f"{change.centre * 100:.1f} % ({change.low * 100:.1f} to {change.high * 100:.1f} %)"


def _why_failed(said: Statement) -> str:
    counts = [f"{number} NaN or Inf at {_tokens([tokens])}" for tokens, number in said.bad_values.items()]
    reasons = [reason[:_LONGEST] for reason in said.record["reasons"]]
    shown = [*counts, *reasons][:_SHOWN]
    return f"failed on {said.record['device'].get('board', 'its GPU')[:_LONGEST]}: {'; '.join(shown)}"


def _as_it_was(before: Statement | None, bench: Bench) -> str:
    return f"; in {bench.base} it was proven" if before and before.status == PROVEN else ""


def _tokens(counts: Sequence[str]) -> str:
    return f"{' and '.join(counts)} token{'' if list(counts) == ['1'] else 's'}"


def _finding(rule: Rule, claim: Claim, bench: Bench, message: str) -> Finding:
    remedy = f"{rule.fix} {claim.how_to_verify(bench.base, again=rule is BELOW_POLICY)}"
    return Finding(rule, claim.row.place, f"under `{claim.use.id}`: {message}", remedy)
