"""Rules about kernel names: whether they can be what the row says they are (contract 4.8)."""

from __future__ import annotations

from collections.abc import Iterator

from moeshapes.findings import Finding
from moeshapes.kernel_name import LABEL_FAMILIES, KernelName
from moeshapes.recipe import format_of
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

UNKNOWN_KERNEL = Rule(
    "MOE301",
    "unknown-kernel",
    Severity.INFO,
    what="A kernel's name follows no grammar that is known here.",
    why="Nothing about it can be checked: not its stage, its formats or its block sizes.",
    fix="Check the name; if AITER has a new family, add its template to kernel_name.py.",
)
WRONG_STAGE = Rule(
    "MOE302",
    "wrong-stage",
    Severity.ERROR,
    what="A kernel stands in the column of a stage that it does not run, or a stage has no kernel.",
    why="AITER dispatches by the name's prefix and the column, and runs another kernel than was measured, or fails.",
    fix="Put each kernel under its own stage.",
)
WRONG_FORMAT = Rule(
    "MOE303",
    "wrong-format",
    Severity.ERROR,
    what="A kernel's name states other formats than q_dtype_a and q_dtype_w.",
    why="The kernel would read activations or weights as another format.",
    fix="Name a kernel of the row's formats, or correct the row's key.",
)
WRONG_BLOCK = Rule(
    "MOE304",
    "wrong-block",
    Severity.ERROR,
    what="A kernel reads sorted blocks of another size than block_m.",
    why="Tokens are sorted in blocks of block_m rows; a kernel with other blocks silently takes a wrong expert's.",
    fix="Name kernels whose tile M, or `_sbm`, is block_m.",
)
WRONG_LENGTH = Rule(
    "MOE305",
    "wrong-symbol-length",
    Severity.ERROR,
    what="A mangled symbol's length prefix is not the symbol's length.",
    why="No kernel of that name exists, so it cannot be loaded.",
    fix="Write the symbol's length.",
)
LABEL = Rule(
    "MOE306",
    "label-not-kernel",
    Severity.INFO,
    what="A name is a label that AITER does not launch.",
    why="Another kernel runs than the row names, so its times may describe something else.",
    fix="See what runs with `explain`.",
)

_SORTED_BY_NAME = frozenset({"mxmoe_g1", "mxmoe_g2"})
"""Families whose own tile decides how tokens are sorted: block_m is ignored (contract 2.3)."""


@check
def unknown_kernels(subject: Subject) -> Iterator[Finding]:
    for column, name, kernel in subject.kernels:
        if kernel is None:
            yield subject.finding(UNKNOWN_KERNEL, f"cannot check kernelName{column} `{name}`: unknown kind of kernel")


@check
def labels(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        if kernel.family in LABEL_FAMILIES and not (column == 2 and kernel.family == "cktile"):
            yield subject.finding(
                LABEL, f"kernelName{column} `{kernel.render()}` is a label, not a kernel that runs as named"
            )


@check
def stages(subject: Subject) -> Iterator[Finding]:
    row = subject.row
    for column, kernel in subject.parsed:
        legal = {1: 0 if row.run_1stage else 1, 2: 2}[column]
        if kernel.stage is not None and kernel.stage != legal:
            where = f"kernelName{column} with run_1stage {int(row.run_1stage)}"
            yield subject.finding(WRONG_STAGE, f"`{kernel.render()}` runs {_stage(kernel)} but stands in {where}")
    if row.run_1stage == bool(row.kernel2):
        problem = "names a second kernel" if row.run_1stage else "names no kernel for stage 2"
        yield subject.finding(WRONG_STAGE, f"the row has run_1stage {int(row.run_1stage)} and {problem}")


def _stage(kernel: KernelName) -> str:
    return f"stage {kernel.stage}" if kernel.stage else "both stages"


@check
def formats(subject: Subject) -> Iterator[Finding]:
    shape = subject.row.key.shape
    for column, kernel in subject.parsed:
        for cell, dtype, stated in (("q_dtype_a", shape.q_dtype_a, kernel.a), ("q_dtype_w", shape.q_dtype_w, kernel.w)):
            if stated is not None and stated is not format_of(dtype):
                message = f"kernelName{column} `{kernel.render()}` takes {stated.value}, but {cell} is `{dtype}`"
                yield subject.finding(WRONG_FORMAT, message)


@check
def blocks(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        reads = kernel.sort_block_m
        if kernel.family in _SORTED_BY_NAME | LABEL_FAMILIES or reads in (None, subject.row.block_m):
            continue
        message = (
            f"kernelName{column} `{kernel.render()}` reads blocks of {reads}, but block_m is {subject.row.block_m}"
        )
        yield subject.finding(WRONG_BLOCK, message)


@check
def symbol_lengths(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        if kernel.corrected != kernel.render():
            message = f"kernelName{column} `{kernel.render()}` has a wrong length prefix"
            yield subject.finding(WRONG_LENGTH, message, f"Write `{kernel.corrected}`.")
