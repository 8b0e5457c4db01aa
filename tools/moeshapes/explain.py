"""Explanations: from a call to the kernels that run, step by step, with the rule that decided each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite

from moeshapes.dispatch import LARGEST_STEP, TOP, bucket_of, tokens_of
from moeshapes.log_line import Lookup
from moeshapes.row import TunedRow
from moeshapes.rule import Severity
from moeshapes.runtime.call import RuntimeCall
from moeshapes.runtime.discard import discard_reason
from moeshapes.runtime.hazard import Remark, remarks
from moeshapes.runtime.merged import Match, MergedTable
from moeshapes.runtime.nearest import Near, nearest_keys
from moeshapes.runtime.plan import Plan, Situation, plan
from moeshapes.runtime.version import ANY_ACTIVATION, SENTINEL_SLOT, TOP_BUCKET


@dataclass(frozen=True)
class Step:
    """One step of an explanation: what is decided, and lines on how."""

    name: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """What a call finds in a table and what it launches. `subject` says whose call it is."""

    subject: str
    call: RuntimeCall
    match: Match | None
    discarded: str
    situation: Situation
    plan: Plan
    remarks: tuple[Remark, ...]
    nearest: tuple[Near, ...]

    @property
    def row(self) -> TunedRow | None:
        """The row that serves the call."""
        return self.situation.row

    @property
    def has_errors(self) -> bool:
        return any(remark.severity is Severity.ERROR for remark in self.remarks)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return (
            Step("activations", (f"{self.call.format.format.value}: {self.call.format.reason}",)),
            Step("bucket", tuple(_bucket_lines(self.call))),
            Step("top-k", (_topk_line(self.call),)),
            Step("key", (str(self.call.key),)),
            Step("row", tuple(_row_lines(self))),
            Step("runs", tuple(_plan_lines(self))),
        )

    def as_json(self) -> dict[str, object]:
        return {
            "subject": self.subject,
            "backend": "aiter",
            "tokens": self.call.tokens,
            "q_dtype_a": {"format": self.call.format.format.value, "reason": self.call.format.reason},
            "bucket": self.call.bucket,
            "key": {"gfx": self.call.gfx, "cu_num": self.call.cu_num, **asdict(self.call.key.shape)},
            "row": _row_json(self.match) if self.match else None,
            "discarded": self.discarded,
            "runs": _plan_json(self.plan),
            "heuristic": None if self.row else asdict(self.situation.heuristic),
            "remarks": [{"severity": remark.severity.value, "text": remark.text} for remark in self.remarks],
            "nearest": [str(near) for near in self.nearest],
            "steps": [{"name": step.name, "lines": list(step.lines)} for step in self.steps],
        }


def explain(subject: str, call: RuntimeCall, table: MergedTable, logged: Lookup | None = None) -> Explanation:
    """What a call finds and launches, and where that is not what a log says of its lookup."""
    match = table.find(call.key, call.flydsl)
    discarded = discard_reason(match.row, call) if match else ""
    situation = Situation(call, match.row if match and not discarded else None)
    planned = plan(situation)
    found = [*_contradictions(logged, match, situation), *_unasked(call), *remarks(situation, planned)]
    nearest = () if match else tuple(nearest_keys(call.key, table))
    return Explanation(subject, call, match, discarded, situation, planned, tuple(found), nearest)


def _contradictions(logged: Lookup | None, match: Match | None, situation: Situation) -> Iterator[Remark]:
    """AITER logs a row before it throws any away, so that one that is found counts even then."""
    if logged is None:
        return
    causes = "other tables, another AITER (--aiter-of) or environment (--env)?"
    row = match.row if match else None
    if logged.missed is not (row is None):
        logged_row, own_row = ("no row", "one") if logged.missed else ("a row", "none")
        yield Remark(Severity.WARNING, f"the log line found {logged_row}, these tables have {own_row}: {causes}")
    elif logged.one_stage is not (own := row.run_1stage if row else situation.heuristic.one_stage):
        stages = ("2stage", "1stage")
        text = f"the log line says {stages[logged.one_stage]}, these rules give {stages[own]}: {causes}"
        yield Remark(Severity.WARNING, text)


def _unasked(call: RuntimeCall) -> Iterator[Remark]:
    """A given activation format that no call of its bucket asks for, as the settings are."""
    if call.given and all(call.with_tokens(n).asked_for.format is not call.given for n in _ends(call)):
        choice = call.asked_for
        text = f"no call with these settings asks for {call.given.value} activations, but for {choice.format.value}"
        yield Remark(Severity.WARNING, f"{text} ({choice.reason})")


def _ends(call: RuntimeCall) -> tuple[int, ...]:
    counts = tokens_of(call.bucket)
    return (counts[0], call.tokens, counts[-1])


def bucket_line(call: RuntimeCall) -> str:
    """`7 → 8 (serves 5 to 8 tokens)`."""
    counts = tokens_of(bucket_of(call.tokens))
    served = f"{counts[0]} tokens and more" if counts[0] == TOP else f"{counts[0]} to {counts[-1]} tokens"
    return f"{call.tokens} → {call.bucket}" + (f" (serves {served})" if len(counts) > 1 else "")


def _bucket_lines(call: RuntimeCall) -> Iterator[str]:
    yield bucket_line(call)
    if call.tokens > LARGEST_STEP:
        yield call.version.rule(TOP_BUCKET)


def _topk_line(call: RuntimeCall) -> str:
    if not call.expert_mask:
        return f"{call.topk}: width of topk_ids, no expert mask"
    return f"{call.topk} of width {call.topk_width}: {call.version.rule(SENTINEL_SLOT)}"


def _row_lines(explanation: Explanation) -> Iterator[str]:
    match = explanation.match
    if match is None:
        yield "none"
        if explanation.call.bucket == TOP:
            yield f"nor one for {LARGEST_STEP}, which is tried next"
        for near in explanation.nearest:
            yield f"nearest, never borrowed: {near}"
        return
    row = match.row
    yield from named_row(row)
    yield from _match_lines(match)
    if explanation.discarded:
        yield f"found, and thrown away: {explanation.discarded}"


def _match_lines(match: Match) -> Iterator[str]:
    if not match.own_tier:
        asked, served = match.asked.shape.token, match.row.key.shape.token
        yield f"tier fallback: there is none for {asked}, so the row for {served} serves"
    if not match.own_activation:
        own, other = (key.shape.act_type.partition(".")[2] for key in (match.row.key, match.asked))
        yield f"it is tuned for {own}, the call is {other}: {ANY_ACTIVATION.now}"
    for row in match.shadowed:
        yield f"shadows {row.place} ({row.key.shape.act_type.partition('.')[2]}, {row.us:g} µs), which no call reaches"
    if match.hangs_on_file_order:
        yield "which of these files comes first is up to the file system that AITER lists"


def named_row(row: TunedRow) -> Iterator[str]:
    """A row's place, recorded times and kernels."""
    yield f"{row.place}: {_times(row)}, block_m {row.block_m}"
    yield from (kernel for kernel in (row.kernel1, row.kernel2) if kernel)


def _times(row: TunedRow) -> str:
    if not isfinite(row.us):
        return "no time that can be read"
    stages = f" ({row.us1:g} + {row.us2:g})" if row.us2 else ""
    return f"recorded {row.us:g} µs{stages}"


def _plan_lines(explanation: Explanation) -> Iterator[str]:
    planned, row = explanation.plan, explanation.row
    named = row is not None and planned.names == tuple(name for name in (row.kernel1, row.kernel2) if name)
    chosen = "as the row names it" if named else "AITER's own choice" if row is None else "not all as the row names it"
    splits = f", split K {planned.ksplit}" if planned.ksplit > 1 else ""
    yield f"{planned.path}, {chosen} (step {planned.step} of AITER's order), block_m {planned.block_m}{splits}"
    yield from () if named else (str(stage) for stage in planned.stages)
    if row is None:
        yield f"AITER logs: {_logged(explanation)}"
    for remark in explanation.remarks:
        yield f"{remark.severity.value}: {remark.text}"


def _logged(explanation: Explanation) -> str:
    """What AITER logs of a call without a row: its heuristic's choice, and what the step that runs has instead."""
    heuristic, planned = explanation.situation.heuristic, explanation.plan
    own = [f"block_m {planned.block_m}"] if planned.block_m != heuristic.block_m else []
    if heuristic.ksplit > 1 and planned.ksplit != heuristic.ksplit:
        own.append(f"split K {planned.ksplit}" if planned.ksplit > 1 else "no split K")
    return f"{heuristic}" + (f": its heuristic's choice; this step has {' and '.join(own)}" if own else "")


def _row_json(match: Match) -> dict[str, object]:
    return {
        "own_activation": match.own_activation,
        "own_tier": match.own_tier,
        "hangs_on_file_order": match.hangs_on_file_order,
        "shadowed": [str(other.place) for other in match.shadowed],
        **row_json(match.row),
    }


def row_json(row: TunedRow) -> dict[str, object]:
    """A row's place, recorded time and launch fields."""
    us = row.us if isfinite(row.us) else None
    return {"file": row.place.file, "line": row.place.line, "us": us, **row.launch()}


def _plan_json(planned: Plan) -> dict[str, object]:
    stages = [{"family": stage.family, "kernel": stage.name} for stage in planned.stages]
    return {
        "step": planned.step,
        "path": planned.path,
        "stages": stages,
        "block_m": planned.block_m,
        "ksplit": planned.ksplit,
    }
