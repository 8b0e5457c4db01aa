"""What can be wrong where the portable kernels are tuned."""

from __future__ import annotations

from moeshapes.rule import Rule, Severity

NOT_TUNABLE = Rule(
    "MOE551", "not-tunable", Severity.ERROR,
    what="What is to be tuned is not declared for the portable kernels, or its GPU is not here.",
    why="Candidates are judged under declared uses, on the GPU that the row is for.",
    fix="Name a shape or an untuned table of generated/triton whose GPU is here, and token buckets that it declares.",
)  # fmt: skip
NOTHING_FASTER = Rule(
    "MOE552", "nothing-faster", Severity.WARNING,
    what="No candidate of a declared bucket is proven and faster than what runs without a row.",
    why="What runs without a row is then the best that is known for these calls, and nothing is written.",
    fix="Move the bucket from `tokens` to `left_out` with the reason, or widen the space with --space.",
)  # fmt: skip
BUDGET_SPENT = Rule(
    "MOE553", "budget-spent", Severity.WARNING,
    what="The budget ended before every bucket was tuned.",
    why="Nothing is known yet of the buckets that are left.",
    fix="Run it again: what was screened and judged is not run twice.",
)  # fmt: skip
