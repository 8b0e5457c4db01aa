"""Rules about parts of a kernel's name that change nothing (contract 4.1, 9)."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.findings import Finding
from moeshapes.kernel_name import KernelName
from moeshapes.recipe import Format
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

NO_OP_SUFFIX = Rule(
    "MOE319", "no-op-suffix", Severity.INFO,
    what="A part of a kernel's name has no effect.",
    why="Names that differ in it alone are one kernel: a time that differs between them is noise.",
    fix="Prefer the name without it when the row is next tuned.",
)  # fmt: skip


@check
def no_op_suffixes(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        parts = ", ".join(f"`{part}`" for part in _inert(kernel))
        if parts:
            yield subject.finding(NO_OP_SUFFIX, f"kernelName{column} `{kernel.render()}`: {parts} changes nothing")


def _inert(kernel: KernelName) -> Iterator[str]:
    if kernel.family == "flydsl_moe2":
        if kernel.bnt and kernel.a is not Format.BF16:
            yield f"_bnt{kernel.bnt}"
        if kernel.persist and kernel.a in (Format.FP8, Format.BF16):
            yield "_persist"
        if kernel.mode == "reduce" and kernel.a is Format.BF16:
            yield "_reduce"
    if kernel.family == "flydsl_moe1" and kernel.a is Format.BF16 and kernel.waves_per_eu != 1:
        yield f"_w{kernel.waves_per_eu}"
