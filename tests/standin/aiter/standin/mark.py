"""Marks of layouts on storages: views of a tensor keep them, copies lose them, values are never looked at."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .refusal import require
from .settings import SETTINGS

_ATTRIBUTE = "aiter_standin_mark"


@dataclass(frozen=True)
class Mark:
    """A layout. kind: `weight`, `int4 weight`, `scale` or `int4 scale`; `interleaved`: 16 gate rows, 16 up rows, …"""

    kind: str
    interleaved: bool = False

    def __str__(self) -> str:
        return f"shuffled {self.kind}{', gate and up interleaved' if self.interleaved else ''}"


def put_mark(tensor: Tensor, mark: Mark) -> Tensor:
    """The tensor, its storage marked."""
    setattr(tensor.untyped_storage(), _ATTRIBUTE, mark)
    return tensor


def mark_of(tensor: Tensor) -> Mark | None:
    found: Mark | None = getattr(tensor.untyped_storage(), _ATTRIBUTE, None)
    return found


def require_mark(name: str, tensor: Tensor, wanted: Mark) -> None:
    """Raises StandinRefused unless the tensor is laid out as wanted. Unmarked ones pass only if lenient."""
    mark = mark_of(tensor)
    if mark is None:
        require(
            SETTINGS.lenient,
            f"{name} is no {wanted}: it was never shuffled, or was copied since. Shuffle after all that copies",
        )
        return
    require(mark == wanted, f"{name} is a {mark}, and the chosen kernel reads a {wanted}")
