"""Uses that production never has: token buckets in which no call asks for the recipe's activation format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from moeshapes.dispatch import (
    BF16_FP4_BOUND,
    BF16_FP8_BOUND,
    FORCE_A8W4,
    MAX_TOKENS,
    SITUV2_A4W4,
    SITUV2_A8W4,
    Caller,
    is_reachable_bucket,
)
from moeshapes.findings import Finding
from moeshapes.model import Block
from moeshapes.rule import Rule, Severity
from moeshapes.shape import Entry, Shape
from moeshapes.yaml_text import listed_tokens

NOT_ASKED_FOR = Rule(
    "MOE045", "not-asked-for", Severity.ERROR,
    what="No call with the tokens of a declared bucket asks for the recipe's activation format.",
    why="AITER chooses the format from gate mode, activation, token count and environment; the row is never hit.",
    fix="Set what makes AITER choose this format, or leave the buckets out with a reason.",
)  # fmt: skip

_SETTINGS = (
    (BF16_FP8_BOUND, "0"),
    (BF16_FP8_BOUND, str(MAX_TOKENS + 1)),
    (BF16_FP4_BOUND, "0"),
    (BF16_FP4_BOUND, str(MAX_TOKENS + 1)),
    (SITUV2_A8W4, "1"),
    (SITUV2_A4W4, "1"),
    (FORCE_A8W4, "1"),
)


def unasked_buckets(shape: Shape, entry: Entry, block: Block) -> Iterator[Finding]:
    """One finding for each architecture on which some of the entry's buckets never ask for the recipe."""
    if not shape.is_sound("recipe", "gpus", "gate_mode", "env"):
        return
    buckets = [token for token in entry.tokens if is_reachable_bucket(token)]
    for gfx in sorted({gpu.gfx for gpu in shape.gpus}):
        caller = Caller(gfx, shape.recipe, block.activation, shape.gate_mode, shape.env)
        missed = [bucket for bucket in buckets if not caller.reaches(bucket)]
        if missed:
            listed = f"{'buckets' if missed[1:] else 'bucket'} {listed_tokens(missed)}"
            message = (
                f"on {gfx} no call of {listed} asks for {shape.recipe.a.value} activations,"
                f" as {shape.recipe.name} has (block `{entry.block}`, {block.activation}, {shape.gate_mode} gates)"
            )
            yield Finding(NOT_ASKED_FOR, entry.tokens[missed[0]], message, _remedy(caller, missed))


def setting_that_reaches(caller: Caller, buckets: Iterable[int]) -> tuple[str, Mapping[str, str]] | None:
    """The gate mode, and what to add to the environment, so that calls of all these buckets ask for the recipe.

    The nearest to what the caller has, tried here before it is proposed; None where nothing does it.
    """
    wanted = list(buckets)
    for gate_mode in dict.fromkeys((caller.gate_mode, "interleave", "separated")):
        for addition in ({}, *({name: value} for name, value in _SETTINGS)):
            changed = replace(caller, gate_mode=gate_mode, env={**caller.env, **addition})
            if all(changed.reaches(bucket) for bucket in wanted):
                return gate_mode, addition
    return None


def _remedy(caller: Caller, missed: Iterable[int]) -> str:
    setting = setting_that_reaches(caller, missed)
    if setting is None:
        return "Choose the recipe that these calls ask for, or leave these buckets out."
    gate_mode, addition = setting
    changes = [f"`gate_mode: {gate_mode}`"] if gate_mode != caller.gate_mode else []
    changes += [f"`env: {{{name}: {value}}}`" for name, value in addition.items()]
    serving = "sets it" if addition else "lays out the weights so"
    return f"Set {' and '.join(changes)} if serving {serving}, or leave these buckets out."
