"""Rules about rows of the portable Triton kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moeshapes.family import AITER_CONFIGS, OWN_CONFIGS, TRITON
from moeshapes.findings import Finding, Place
from moeshapes.portable import FAMILIES, kernel_faults, why_no_kernels
from moeshapes.recipe import fp8_is_fnuz
from moeshapes.row import is_portable
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check
from moeshapes.table import Table

WRONG_TABLE = Rule(
    "MOE323", "wrong-table", Severity.ERROR,
    what="A row names portable Triton kernels and AITER's, or stands in a table of the others.",
    why="AITER knows no `triton_` kernel and stops, or runs another; the portable backend runs no other.",
    fix="Keep rows of `triton_` kernels in tables of that prefix in generated/triton, and no others there.",
)  # fmt: skip
NO_SUCH_KERNEL = Rule(
    "MOE324", "no-such-portable-kernel", Severity.ERROR,
    what="The portable backend has no such kernel for the row's key.",
    why="The name is decoded and compiled as it says: it is refused, or would misread scale blocks.",
    fix="Name kernels whose tiles are powers of two that fit the recipe's scale blocks.",
)  # fmt: skip

_AITERS, _PORTABLE = (f"{OWN_CONFIGS}/", f"{AITER_CONFIGS}/"), f"{TRITON}/"


@check
def tables(subject: Subject) -> Iterator[Finding]:
    names = [name for _, name, _ in subject.kernels]
    portable = [is_portable(name) for name in names]
    file = subject.row.place.file
    if any(portable) and not all(portable):
        message = f"`{names[0]}` and `{names[1]}` are of two backends, and one alone runs a row"
        yield subject.finding(WRONG_TABLE, message)
    elif any(portable) and file.startswith(_AITERS):
        yield subject.finding(WRONG_TABLE, f"`{names[0]}` is a portable kernel, and this is a table of AITER's")
    elif names and not any(portable) and file.startswith(_PORTABLE):
        message = f"`{names[0]}` is a kernel of AITER's, and this is a table of the portable kernels"
        yield subject.finding(WRONG_TABLE, message)


def misplacements(tables: Iterable[Table]) -> Iterator[Finding]:
    """Which tables, by their paths below the root, stand in the folder of the other backend."""
    return (Finding(WRONG_TABLE, Place(table.name), fault) for table in tables for fault in _misplacement(table.name))


def _misplacement(file: str) -> Iterator[str]:
    if is_portable(file) and file.startswith(_AITERS):
        yield f"its name is of a table of the portable kernels, which stand in {TRITON}"
    elif not is_portable(file) and file.startswith(_PORTABLE):
        yield "its name does not begin with `triton_`: the folder is of the portable kernels alone"


@check
def portable_kernels(subject: Subject) -> Iterator[Finding]:
    recipe, gfx = subject.recipe, subject.row.key.gfx
    kernels = [(column, kernel) for column, kernel in subject.parsed if kernel.family in FAMILIES]
    if recipe is None or not kernels:
        return
    if reason := why_no_kernels(recipe, fp8_is_fnuz(gfx)):
        yield subject.finding(NO_SUCH_KERNEL, f"{gfx}: {reason}", "Name kernels of AITER's, in a table of AITER's.")
        return
    for column, kernel in kernels:
        for fault in kernel_faults(kernel, recipe):
            yield subject.finding(NO_SUCH_KERNEL, f"kernelName{column} `{kernel.render()}` {fault}")
