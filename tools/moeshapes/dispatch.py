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


def _situv2(call: Call) -> Format:
    if call.number(SITUV2_A8W4, 0) == 1:
        return Format.FP8
    return Format.FP4 if call.number(SITUV2_A4W4, 0) == 1 else Format.BF16


def _separated_swiglu(call: Call) -> Format:
    return Format.BF16 if call.tokens < call.number(BF16_FP4_BOUND, _DEFAULT_BOUND) else Format.FP4


def _interleaved(call: Call) -> Format:
    few = call.tokens < call.number(BF16_FP8_BOUND, _DEFAULT_BOUND)
    return Format.BF16 if few or call.gfx != "gfx950" else Format.FP8


_FORMAT_RULES: tuple[tuple[Callable[[Call], bool], Callable[[Call], Format]], ...] = (
    (lambda c: c.gfx == "gfx1250", lambda c: Format.FP8 if c.number(FORCE_A8W4, 0) == 1 else Format.FP4),
    (lambda c: c.q_type is not QType.PER_1X32, lambda c: c.weight),
    (lambda c: c.weight is Format.INT4, lambda c: Format.BF16),
    (lambda c: c.weight is Format.FP8, lambda c: Format.FP8),
    (lambda c: c.activation == "situv2", _situv2),
    (lambda c: c.activation == "swiglu" and c.gate_mode == "separated", _separated_swiglu),
    (lambda c: c.activation == "swiglu" or c.gate_mode == "interleave", _interleaved),
    (lambda c: True, lambda c: Format.FP4),
)
"""Contract 3.1: the first condition that holds decides."""


def activation_format(call: Call) -> Format:
    """The format that the call quantises its activations to: q_dtype_a of the key it looks up."""
    return next(choose(call) for holds, choose in _FORMAT_RULES if holds(call))


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
        counts = tokens_of(bucket)
        bounds = [int(self.env.get(name, _DEFAULT_BOUND)) for name in (BF16_FP8_BOUND, BF16_FP4_BOUND)]
        # The format changes only at a bound, so the ends of the bucket and the bounds' neighbours stand for all counts.
        candidates = {counts[0], counts[-1], *(bound + step for bound in bounds for step in (-1, 0))}
        return any(activation_format(self._call(count)) is self.recipe.a for count in candidates if count in counts)

    def _call(self, tokens: int) -> Call:
        return Call(tokens, self.gfx, self.recipe.w, self.recipe.q_type, self.activation, self.gate_mode, self.env)
