"""Functions as operators of PyTorch: as AITER's own, they stand behind PyTorch's dispatcher, which modes act upon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import torch
from torch.library import Library, infer_schema


def operator(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as an operator of CPU tensors, in a namespace of its own: the stand-in is imported many times."""
    name = getattr(function, "__name__", "")
    library = Library(f"aiter_standin_{uuid4().hex}", "FRAGMENT")
    library.define(name + infer_schema(function, mutates_args=()))
    library.impl(name, function, "CPU")

    def called(*arguments: Any, **named: Any) -> Any:
        return getattr(getattr(torch.ops, library.ns), name)(*arguments, **named)

    return called
