"""What a runtime call of AITER's fused_moe asks for: its token bucket and its activation format (contract 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moeshapes.recipe import Format, QType, Recipe

LARGEST_STEP = 32768
"""Buckets are the powers of two up to here, and TOP alone above."""
TOP = 131072
MAX_TOKENS = 1 << 20
"""Where TOP's bucket ends for this project: it has no end in AITER."""

BUCKETS = (*(1 << n for n in range(LARGEST_STEP.bit_length())), TOP)


def bucket_of(tokens: int) -> int:
    """The padded token count that a call with that many tokens looks up."""
    if tokens >= TOP:
        return TOP
    return min(1 << max(tokens - 1, 0).bit_length(), LARGEST_STEP)


def is_reachable_bucket(token: int) -> bool:
    """Whether any call looks that token count up."""
    return token in BUCKETS


def tokens_of(bucket: int) -> range:
    """The token counts of calls that look `bucket` up: 5 to 8 for 8. Raises ValueError where there are none."""
    if not is_reachable_bucket(bucket):
        raise ValueError(f"no call looks up {bucket} tokens")
    if bucket == TOP:
        return range(TOP, MAX_TOKENS + 1)
    first = bucket // 2 + 1 if bucket > 1 else 1
    return range(first, TOP if bucket == LARGEST_STEP else bucket + 1)


@dataclass(frozen=True)
class Call:
    """What the activation format of a call depends on. `tokens` is the true count, not the padded one."""

    tokens: int
    gfx: str
    weight: Format
    q_type: QType
    activation: str
    gate_mode: str
    env: Mapping[str, str] = field(default_factory=dict)

    def number(self, variable: str, default: int) -> int:
        """An environment variable as AITER reads it; ValueError where it is not a whole number."""
        return int(self.env.get(variable, default))


BF16_FP8_BOUND = "AITER_BF16_FP8_MOE_BOUND"
BF16_FP4_BOUND = "GPTOSS_SWIGLU_MXFP4_BF16_BOUND"
SITUV2_A8W4 = "AITER_SITUV2_A8W4"
SITUV2_A4W4 = "AITER_SITUV2_A4W4"
FORCE_A8W4 = "AITER_FORCE_A8W4"
VARIABLES = (BF16_FP8_BOUND, BF16_FP4_BOUND, SITUV2_A8W4, SITUV2_A4W4, FORCE_A8W4)
"""The environment variables that the activation format depends on; all are whole numbers."""
_DEFAULT_BOUND = 256


def _by_variables(call: Call, *choices: tuple[str, Format], default: Format) -> tuple[Format, str]:
    """The format of the first variable that is 1."""
    for variable, number in choices:
        if call.number(variable, 0) == 1:
            return number, f"{variable} is 1"
    return default, " and ".join(f"{variable} is not 1" for variable, _ in choices)


def _by_bound(call: Call, variable: str, above: Format) -> tuple[Format, str]:
    """bf16 under the variable's bound, which compares the true token count."""
    bound = call.number(variable, _DEFAULT_BOUND)
    few = call.tokens < bound
    source = variable if variable in call.env else f"{variable} by default"
    return Format.BF16 if few else above, f"{call.tokens} {'<' if few else '>='} {bound} ({source})"


def _situv2(call: Call) -> tuple[Format, str]:
    return _by_variables(call, (SITUV2_A8W4, Format.FP8), (SITUV2_A4W4, Format.FP4), default=Format.BF16)


def _interleaved(call: Call) -> tuple[Format, str]:
    if call.gfx != "gfx950":
        return Format.BF16, f"{call.gfx} is not gfx950"
    return _by_bound(call, BF16_FP8_BOUND, Format.FP8)


@dataclass(frozen=True)
class FormatRule:
    """When a rule holds, in words and as a test, and what it chooses and why."""

    words: str
    holds: Callable[[Call], bool]
    choose: Callable[[Call], tuple[Format, str]]


_FORMAT_RULES = (
    FormatRule(
        "gfx1250",
        lambda c: c.gfx == "gfx1250",
        lambda c: _by_variables(c, (FORCE_A8W4, Format.FP8), default=Format.FP4),
    ),
    FormatRule(
        "quantised otherwise than per_1x32, so as the weights",
        lambda c: c.q_type is not QType.PER_1X32,
        lambda c: (c.weight, ""),
    ),
    FormatRule("per_1x32, int4 weights", lambda c: c.weight is Format.INT4, lambda c: (Format.BF16, "")),
    FormatRule("per_1x32, fp8 weights", lambda c: c.weight is Format.FP8, lambda c: (Format.FP8, "")),
    FormatRule("per_1x32, fp4 weights, situv2", lambda c: c.activation == "situv2", _situv2),
    FormatRule(
        "per_1x32, fp4 weights, swiglu, separated gates",
        lambda c: c.activation == "swiglu" and c.gate_mode == "separated",
        lambda c: _by_bound(c, BF16_FP4_BOUND, Format.FP4),
    ),
    FormatRule(
        "per_1x32, fp4 weights, swiglu or interleaved gates",
        lambda c: c.activation == "swiglu" or c.gate_mode == "interleave",
        _interleaved,
    ),
    FormatRule("per_1x32, fp4 weights, separated gates", lambda c: True, lambda c: (Format.FP4, "")),
)
"""Contract 3.1: the first that holds decides."""


@dataclass(frozen=True)
class FormatChoice:
    """The activation format of a call, and the rule and variable that chose it."""

    format: Format
    reason: str


def choose_format(call: Call) -> FormatChoice:
    """The format that the call quantises its activations to, q_dtype_a of the key it looks up, and why."""
    rule = next(rule for rule in _FORMAT_RULES if rule.holds(call))
    chosen, why = rule.choose(call)
    return FormatChoice(chosen, f"{rule.words}: {why}" if why else rule.words)


def activation_format(call: Call) -> Format:
    """The format that the call quantises its activations to: q_dtype_a of the key it looks up."""
    return choose_format(call).format


@dataclass(frozen=True)
class Caller:
    """How one deployment calls: a Call without its token count."""

    gfx: str
    recipe: Recipe
    activation: str
    gate_mode: str
    env: Mapping[str, str]

    def reaches(self, bucket: int) -> bool:
        """Whether a call of any token count of the bucket asks for the recipe's activation format."""
        return self.recipe.a in self.asks(bucket).values()

    def asks(self, bucket: int) -> dict[int, Format]:
        """The formats that calls of the bucket ask for, by the first token count that asks for each, ascending."""
        counts = tokens_of(bucket)
        bounds = [int(self.env.get(name, _DEFAULT_BOUND)) for name in (BF16_FP8_BOUND, BF16_FP4_BOUND)]
        # The format changes only at a bound, so the first of the bucket and the bounds stand for all counts.
        first_counts: dict[Format, int] = {}
        for count in sorted({counts[0], *(bound for bound in bounds if bound in counts)}):
            first_counts.setdefault(activation_format(self._call(count)), count)
        return {count: number for number, count in first_counts.items()}

    def _call(self, tokens: int) -> Call:
        return Call(tokens, self.gfx, self.recipe.w, self.recipe.q_type, self.activation, self.gate_mode, self.env)
