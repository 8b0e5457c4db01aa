"""The kernels that were launched, for a profiler and for a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

from .settings import SETTINGS


@dataclass(frozen=True)
class Launch:
    """A kernel that ran: its stage (0 for sorting and quantisers), the symbol a profiler shows, the name of AITER's
    tables for it (empty where it has none).
    """

    stage: int
    symbol: str
    name: str = ""


_LAUNCHES: list[Launch] = []


def launched() -> list[Launch]:
    """Every kernel since `forget()`, in order."""
    return list(_LAUNCHES)


def forget() -> None:
    _LAUNCHES.clear()


@contextmanager
def running(launch: Launch) -> Iterator[None]:
    """Records the launch, and shows its symbol to a profiler while it lasts."""
    _LAUNCHES.append(launch)
    untraced = SETTINGS.lies_about("untraced")
    with nullcontext() if untraced else torch.profiler.record_function(launch.symbol):
        yield
