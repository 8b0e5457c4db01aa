"""Rules about rows that no call looks up, or none without an environment variable (contract 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.dispatch import Caller, bucket_of, is_reachable_bucket
from moeshapes.findings import Finding
from moeshapes.recipe import QType, Recipe, format_of
from moeshapes.row import UntunedRow
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

UNREACHABLE_TOKEN = Rule(
    "MOE170", "unreachable-token", Severity.WARNING,
    what="A row's token count is none that any call looks up.",
    why="Calls look up the next power of two up to 32768, and 131072: the row is never used.",
    fix="Tune the bucket that calls of this many tokens look up.",
)  # fmt: skip
NEVER_ASKED_FOR = Rule(
    "MOE171", "never-asked-for", Severity.WARNING,
    what="No call asks for the row's q_dtype_a, whatever is set.",
    why="AITER chooses it from weights, activation, gate mode and environment: the row is never used.",
    fix="Tune the shape with the activation format that its calls ask for.",
)  # fmt: skip
NEEDS_ENVIRONMENT = Rule(
    "MOE172", "needs-environment", Severity.WARNING,
    what="No call asks for the row's q_dtype_a unless an environment variable is set.",
    why="With AITER's defaults the row is never used, and nothing says so.",
    fix="Set the variable where the row is to be used, and declare it as `env` in the shape file.",
)  # fmt: skip


@check
def tokens(subject: Subject) -> Iterator[Finding]:
    token = subject.row.key.shape.token
    if not is_reachable_bucket(token):
        bucket = bucket_of(token)
        message = f"no call looks up {token} tokens: calls of {token} look up {bucket}"
        yield subject.finding(UNREACHABLE_TOKEN, message, f"Tune {bucket} instead.")


@check
def activation_formats(subject: Subject) -> Iterator[Finding]:
    """Where shapes declare the key, they have been judged with the environment that they declare.

    Rows of the portable kernels are looked up under the formats of their recipe, whatever AITER would ask for.
    """
    key, recipe = subject.row.key, _recipe(subject.row.key.shape)
    if recipe is None or subject.row.is_portable or subject.uses or not is_reachable_bucket(key.shape.token):
        return
    activation = key.shape.act_type.partition(".")[2].lower()
    bucket = key.shape.token
    callers = [Caller(key.gfx, recipe, activation, gate_mode, {}) for gate_mode in ("separated", "interleave")]
    if any(caller.reaches(bucket) for caller in callers):
        return
    from moeshapes.reach import setting_that_reaches  # it reads shape files too, which costs start-up time

    asks = f"no call of bucket {bucket} with {activation} asks for `{key.shape.q_dtype_a}`"
    setting = setting_that_reaches(callers[0], [bucket])
    if setting is None:
        yield subject.finding(NEVER_ASKED_FOR, asks)
    else:
        needed = " ".join(f"{name}={value}" for name, value in setting[1].items())
        yield subject.finding(NEEDS_ENVIRONMENT, f"{asks} unless {needed} is set", f"Set {needed} where it is served.")


def _recipe(shape: UntunedRow) -> Recipe | None:
    """The formats of the row whether or not the registry has them together; None where one is unknown."""
    a, w = format_of(shape.q_dtype_a), format_of(shape.q_dtype_w)
    q_type = next((each for each in QType if str(each) == shape.q_type), None)
    return Recipe("", a, w, q_type) if a and w and q_type else None
