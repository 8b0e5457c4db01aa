"""Rules about rows that AITER discards, or raises on, whatever is measured."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.findings import Finding
from moeshapes.kernel_name import KernelName
from moeshapes.recipe import Format
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

REFUSED = Rule(
    "MOE318", "refused", Severity.ERROR,
    what="A kernel cannot take a call that the row's key, or a declared use of it, stands for.",
    why="AITER raises, or discards the row and runs the default path: the row is never used.",
    fix="Name a kernel that takes the call.",
)  # fmt: skip

_LAYOUT_MAX = 8192


@check
def refusals(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        for reason in _reasons(subject, kernel):
            yield subject.finding(REFUSED, f"kernelName{column} `{kernel.render()}`: {reason}")


def _reasons(subject: Subject, kernel: KernelName) -> Iterator[str]:
    if kernel.family == "opus_moe1" and subject.row.key.shape.doweight_stage1:
        yield "opus stage 1 does not take doweight_stage1"
    if kernel.family == "opus_moe2" and any(use.bias for use in subject.uses):
        yield "AITER discards a row with an opus stage 2 where the call has a bias, as a declared use has"
    if kernel.family == "moe2_layout":
        yield from _layout_reasons(subject, kernel)


def _layout_reasons(subject: Subject, kernel: KernelName) -> Iterator[str]:
    shape = subject.row.key.shape
    for dim, size in (("model_dim", shape.model_dim), ("inter_dim", shape.inter_dim)):
        if size > _LAYOUT_MAX:
            yield f"it takes {dim} to {_LAYOUT_MAX}, not {size}"
    if shape.doweight_stage1:
        yield "it does not take doweight_stage1"
    if shape.dtype != "torch.bfloat16":
        yield f"it writes bf16, not `{shape.dtype}`"
    if kernel.persist and kernel.a is Format.FP8:
        yield "`_persist` does not go with fp8 activations"
