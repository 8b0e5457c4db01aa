"""How Triton kernels are launched, compiled ahead of need, and told apart once they ran."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_compiling: ContextVar[bool] = ContextVar("compiling", default=False)
_OF_ROWS = re.compile(r"(triton_moe[12]_.*_t\d+x\d+x\d+)(.*)")


@contextmanager
def compiling() -> Iterator[None]:
    """Within it, `launch` compiles and runs nothing: tensors may be on torch's `meta` device."""
    token = _compiling.set(True)
    try:
        yield
    finally:
        _compiling.reset(token)


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> Any:
    """What Triton compiled, None in its interpreter."""
    if _compiling.get():
        return kernel.warmup(*arguments, grid=grid, **options)
    return kernel[grid](*arguments, **options)


def row_name(compiled: Any) -> str:
    """The name that a row gives to what was compiled: by its own constants, warps and stages, not by what was asked."""
    metadata = compiled.metadata
    found = _OF_ROWS.fullmatch(metadata.name)
    if found is None:
        return str(metadata.name)
    return f"{found[1]}_w{metadata.num_warps}_s{metadata.num_stages}{found[2]}"
