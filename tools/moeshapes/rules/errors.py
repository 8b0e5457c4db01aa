"""Rules about err1 and err2: what the tuner measured against its own reference (contract 7.3)."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.findings import Finding
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

ABOVE_NORM = Rule(
    "MOE162", "err-above-norm", Severity.WARNING,
    what="An error is above what kernels of its family and recipe show.",
    why="A kernel that differs from its siblings computes something else, or was compared with another reference.",
    fix="Verify the row; take another candidate if it fails.",
)  # fmt: skip
TOO_HIGH = Rule(
    "MOE163", "err-too-high", Severity.ERROR,
    what="An error is above the limit of its family and recipe.",
    why="The tuner's own default limit is 10 %: such a row was let through by a raised limit or a wrong reference.",
    fix="Tune the shape again with a reference that has the model's activation parameters; verify before it ships.",
)  # fmt: skip

_DEFAULT = (0.05, 0.15)
LIMITS = {
    ("asm_1stage", "fp8_token"): (0.075, 0.15),
    ("asm_stage1", "fp8_block"): (0.10, 0.15),
    ("ck_gemm", "fp8_block", 2): (0.19, 0.20),
    ("flydsl_moe2", "a4w4"): (0.075, 0.15),
    ("flydsl_moe2", "a16wi4"): (0.075, 0.15),
}
"""Norm and limit, as fractions, by family and recipe, and by stage where the stages differ.

Norms are what AITER's published rows keep to but for outliers. err is a mismatch fraction or a cosine distance, as the
family is tuned: limits are not comparable between families. CK's block-scale stage 2 shows 16 to 18 % throughout, since
its reference does not quantise as it does.
"""


@check
def errors(subject: Subject) -> Iterator[Finding]:
    texts = {1: subject.row.err1, 2: subject.row.err2}
    families = {column: kernel.family for column, kernel in subject.parsed}
    for column, name, _ in subject.kernels:
        norm, limit = _limits(families.get(column, ""), subject.recipe.name if subject.recipe else "", column)
        error, text = _fraction(texts[column]), texts[column]
        if error > limit:
            yield subject.finding(TOO_HIGH, f"err{column} of `{name}` is {text}, above the limit of {limit:.0%}")
        elif error > norm:
            yield subject.finding(ABOVE_NORM, f"err{column} of `{name}` is {text}; its kind keeps to {norm:.1%}")


def _limits(family: str, recipe: str, stage: int) -> tuple[float, float]:
    keys: tuple[tuple[str, str] | tuple[str, str, int], ...] = ((family, recipe, stage), (family, recipe))
    return next((LIMITS[key] for key in keys if key in LIMITS), _DEFAULT)


def _fraction(text: str) -> float:
    """`19.4%` is 0.194, and `0.194` too."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
