"""Nearest keys: the tuned shapes that a missed key resembles, none of which AITER ever borrows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

from moeshapes.row import Key, UntunedRow
from moeshapes.runtime.merged import MergedTable
from moeshapes.yaml_text import listed_tokens

_NAMED = ("model_dim", "inter_dim", "expert", "topk", "dtype", "q_dtype_a", "q_dtype_w", "q_type")
_FLAGS = ("use_g1u1", "doweight_stage1")
_SHOWN = 4
_FARTHEST = 2


@dataclass(frozen=True)
class Near:
    """A tuned shape, the columns in which it differs from a key (none: only the bucket is missing), and its buckets."""

    gfx: str
    cu_num: int
    shape: UntunedRow
    differs: tuple[str, ...]
    buckets: tuple[int, ...]

    def __str__(self) -> str:
        s = self.shape
        formats = " x ".join(dtype.partition(".")[2] for dtype in (s.q_dtype_a, s.q_dtype_w))
        where = f"differs in {', '.join(self.differs)}" if self.differs else "lacks the bucket"
        shape = f"{s.dims} {formats} on {self.gfx}/{self.cu_num}"
        return f"{shape} {where}; tuned for {listed_tokens(self.buckets)}"


def nearest_keys(key: Key, table: MergedTable) -> list[Near]:
    """The tuned shapes that differ from a key in one or two columns: the fewest first, then the nearest in size."""
    near = sorted((found for found in _all(key, table) if len(found.differs) <= _FARTHEST), key=lambda n: _far(key, n))
    return near[:_SHOWN]


def _all(key: Key, table: MergedTable) -> Iterator[Near]:
    for (gfx, cu_num, shape), buckets in table.shapes.items():
        differs = [name for name in (*_NAMED, *_FLAGS) if getattr(shape, name) != getattr(key.shape, name)]
        if (gfx, cu_num) != (key.gfx, key.cu_num):
            differs.append("device")
        yield Near(gfx, cu_num, shape, tuple(differs), tuple(buckets))


def _far(key: Key, near: Near) -> tuple[int, float, UntunedRow]:
    sizes = ("model_dim", "inter_dim", "expert", "topk")
    apart = sum(abs(log(getattr(near.shape, name) / getattr(key.shape, name))) for name in sizes)
    return len(near.differs), apart, near.shape
