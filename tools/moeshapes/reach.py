"""Uses that production never has: on GPUs without kernels for them, or in token buckets that ask for another format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from moeshapes.device import has_aiter
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
from moeshapes.portable import why_no_kernels
from moeshapes.recipe import fp8_is_fnuz
from moeshapes.row import PORTABLE_PREFIX
from moeshapes.rule import Rule, Severity
from moeshapes.shape import Entry, Shape
from moeshapes.yaml_text import listed_tokens

NOT_ASKED_FOR = Rule(
    "MOE045", "not-asked-for", Severity.ERROR,
    what="No call with the tokens of a declared bucket asks for the recipe's activation format.",
    why="AITER chooses the format from gate mode, activation, token count and environment; the row is never hit.",
    fix="Set what makes AITER choose this format, or leave the buckets out with a reason.",
)  # fmt: skip

GPU_WITHOUT_AITER = Rule(
    "MOE037", "gpu-without-aiter", Severity.ERROR,
    what="A shape of one of AITER's tables lists a GPU that AITER does not run on.",
    why="AITER's kernels are for AMD GPUs: no call on the GPU would ever look its rows up.",
    fix="Serve it with the portable Triton kernels: a shape whose `csv` begins with `triton_`.",
)  # fmt: skip
NO_PORTABLE_KERNELS = Rule(
    "MOE038", "no-portable-kernels", Severity.ERROR,
    what="A shape of the portable Triton kernels has a recipe that they do not compute, or not on one of its GPUs.",
    why="Whatever is tuned for its rows, nothing runs it.",
    fix="Choose another recipe, or one of AITER's tables if AITER serves it.",
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


def missing_kernels(shape: Shape) -> Iterator[Finding]:
    """A finding at each GPU of a shape that its kernels are not for, or one at a recipe that they do not compute."""
    if not shape.is_sound("csv", "gpus", "recipe"):
        return
    if not shape.is_portable:
        yield from _gpus_without_aiter(shape)
    elif reason := why_no_kernels(shape.recipe, fnuz=False):
        yield Finding(NO_PORTABLE_KERNELS, shape.document.place("recipe"), reason)
    else:
        for index, gpu in enumerate(shape.gpus):
            if reason := why_no_kernels(shape.recipe, fp8_is_fnuz(gpu.gfx)):
                place = shape.document.place("gpus", index, "gfx")
                remedy = "Remove the GPU, or choose another recipe."
                yield Finding(NO_PORTABLE_KERNELS, place, f"{gpu.gfx}: {reason}", remedy)


def _gpus_without_aiter(shape: Shape) -> Iterator[Finding]:
    mixed = any(has_aiter(gpu.gfx) for gpu in shape.gpus)
    wanted = f"`csv: {PORTABLE_PREFIX}{shape.csv}`"
    remedy = f"Move it to a shape file of its own with {wanted}" if mixed else f"Write {wanted}"
    for index, gpu in enumerate(shape.gpus):
        if not has_aiter(gpu.gfx):
            message = f"`{gpu.gfx}` is no AMD GPU, and {shape.csv} is a table of AITER's"
            place = shape.document.place("gpus", index, "gfx")
            yield Finding(GPU_WITHOUT_AITER, place, message, f"{remedy}: the portable Triton kernels run there.")


def unasked_buckets(shape: Shape, entry: Entry, block: Block) -> Iterator[Finding]:
    """One finding for each architecture on which some of the entry's buckets never ask AITER for the recipe."""
    if shape.is_portable or not shape.is_sound("csv", "recipe", "gpus", "gate_mode", "env"):
        return
    buckets = [token for token in entry.tokens if is_reachable_bucket(token)]
    for gfx in sorted({gpu.gfx for gpu in shape.gpus if has_aiter(gpu.gfx)}):
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
