"""The symbols of the kernels that a call launches, as the profiler sees them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile


def traced(run: Callable[[], Tensor]) -> tuple[Tensor, tuple[str, ...]]:
    """What `run` returns, and the symbols of the kernels that it launched, each once, in order.

    Without a GPU, ranges that code marks itself are taken for kernels; with one, they never are.
    """
    on_gpu = torch.cuda.is_available()
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        result = run()
        if on_gpu:
            torch.cuda.synchronize()
    device = "CUDA" if on_gpu else "CPU"
    events = (event for event in profiler.events() or () if event.device_type.name == device)
    return result, tuple(dict.fromkeys(event.name for event in events if event.is_user_annotation is not on_gpu))


def is_capturing() -> bool:
    """Whether calls are being recorded into a graph, where nothing runs that could be traced."""
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
