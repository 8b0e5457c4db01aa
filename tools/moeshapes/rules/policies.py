"""Rules about what the declared shapes say of a row's kernels."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.findings import Finding
from moeshapes.portable import FAMILIES
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

DENIED_KERNEL = Rule(
    "MOE307",
    "denied-kernel",
    Severity.ERROR,
    what="A row names a kernel that the shape's policy denies.",
    why="The shape file states why such kernels are wrong for this deployment.",
    fix="Tune the shape without that kernel, or change the policy in the shape file.",
)
FUSED_QUANT_UNDER_PAD = Rule(
    "MOE321", "fused-quant-under-pad", Severity.WARNING,
    what="A stage 1 that quantises its own output serves a use whose inter_dim is padded.",
    why="The pad's columns and scales may not be written, and stage 2 reads them: whole NaN rows were seen.",
    fix="Name a stage 1 without fused quantisation, or verify the row under that use on the GPU.",
)  # fmt: skip


@check
def denied_kernels(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        for deny in subject.denies:
            if kernel.matches(deny.match):
                pattern = ", ".join(f"{name}: {value}" for name, value in deny.match.items())
                message = (
                    f"kernelName{column} `{kernel.render()}` is denied by {{{pattern}}} at {deny.place}: {deny.reason}"
                )
                yield subject.finding(DENIED_KERNEL, message)


@check
def fused_quant_under_pad(subject: Subject) -> Iterator[Finding]:
    padded = [use for use in subject.uses if use.intermediate_pad]
    for column, kernel in subject.parsed:
        # Portable kernels write every padded column, with its scales.
        if padded and kernel.stage == 1 and kernel.out_quant and kernel.family not in FAMILIES:
            uses = ", ".join(
                f"`{use.id}` ({use.intermediate_pad} of {subject.row.key.shape.inter_dim})" for use in padded
            )
            message = f"kernelName{column} `{kernel.render()}` quantises to {kernel.out_quant} under the pad of {uses}"
            yield subject.finding(FUSED_QUANT_UNDER_PAD, message)
