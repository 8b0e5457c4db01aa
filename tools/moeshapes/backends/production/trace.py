"""The symbols of the kernels that a call launches, as the profiler sees them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

_OF_TORCH = "aten::"


def traced(run: Callable[[], Tensor]) -> tuple[Tensor, tuple[str, ...]]:
    """What `run` returns, and the symbols of the kernels that it launched, each once, in order.

    Without a GPU, ranges that code marks itself are taken for kernels.
    """
    on_gpu = torch.cuda.is_available()
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        result = run()
        if on_gpu:
            torch.cuda.synchronize()
    device = "CUDA" if on_gpu else "CPU"
    names = (event.name for event in profiler.events() or () if event.device_type.name == device)
    return result, tuple(dict.fromkeys(name for name in names if not name.startswith(_OF_TORCH)))


def is_capturing() -> bool:
    """Whether calls are being recorded into a graph, where nothing runs that could be traced."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
