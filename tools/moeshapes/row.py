"""Rows of AITER's fused-MoE tables: the key that a lookup asks for, and what was tuned for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from moeshapes.findings import Place

UNTUNED_COLUMNS = (
    "token",
    "model_dim",
    "inter_dim",
    "expert",
    "topk",
    "act_type",
    "dtype",
    "q_dtype_a",
    "q_dtype_w",
    "q_type",
    "use_g1u1",
    "doweight_stage1",
)
LAUNCH_COLUMNS = ("block_m", "ksplit", "kernelName1", "kernelName2", "run_1stage", "xbf16", "flat")
"""The columns that decide which kernels run and how; times and errors do not."""

PORTABLE_PREFIX = "triton_"
"""What names of the portable Triton kernels, and of the tables of their rows, begin with; no name of AITER's does."""

GFX_OF_CU_NUM = {80: "gfx942", 304: "gfx942", 256: "gfx950"}
"""AITER's own guess where a table has no gfx column (contract 1.3)."""


def is_portable(name: str) -> bool:
    """Whether a kernel, or a table by its name or path, is the portable backend's and not AITER's."""
    return name.rpartition("/")[2].startswith(PORTABLE_PREFIX)


@dataclass(frozen=True, order=True)
class UntunedRow:
    """A line of an untuned table: a shape to tune, in the order of AITER's columns.

    Dims in elements, padding included; `inter_dim` per rank; `expert` per rank, the fused shared expert included.
    The rest are AITER's spellings (`ActivationType.Silu`, `torch.bfloat16`,
    `QuantType.per_1x32`).
    """

    token: int
    model_dim: int
    inter_dim: int
    expert: int
    topk: int
    act_type: str
    dtype: str
    q_dtype_a: str
    q_dtype_w: str
    q_type: str
    use_g1u1: int
    doweight_stage1: int

    @classmethod
    def of_cells(cls, cells: Sequence[str]) -> UntunedRow:
        """The row that has these `cells()`. Raises ValueError where a number is none, or there are not twelve."""
        token, model_dim, inter_dim, expert, topk, use_g1u1, doweight_stage1 = map(int, (*cells[:5], *cells[10:]))
        act_type, dtype, q_dtype_a, q_dtype_w, q_type = cells[5:10]
        return cls(
            *(token, model_dim, inter_dim, expert, topk),
            *(act_type, dtype, q_dtype_a, q_dtype_w, q_type),
            *(use_g1u1, doweight_stage1),
        )

    def cells(self) -> list[str]:
        return [str(getattr(self, column)) for column in UNTUNED_COLUMNS]

    @property
    def dims(self) -> str:
        """`6144/512/257/9`: model_dim, inter_dim, experts and top-k."""
        return f"{self.model_dim}/{self.inter_dim}/{self.expert}/{self.topk}"


@dataclass(frozen=True, order=True)
class Key:
    """What AITER looks a row up by (contract 3.3): the device and an untuned row's columns."""

    gfx: str
    cu_num: int
    shape: UntunedRow

    def __str__(self) -> str:
        s = self.shape
        names = (s.act_type, s.q_dtype_a, s.q_dtype_w, s.q_type)
        short = " ".join(name.partition(".")[2] or name for name in names)
        return f"{self.gfx}/{self.cu_num} token {s.token} {s.dims} {short} doweight_stage1={s.doweight_stage1}"


@dataclass(frozen=True)
class TunedRow:
    """A line of a tuned table. Times in microseconds; `err1`/`err2` as written: AITER mixes notations (contract 2.3).

    `kernel2` is empty where there is no second stage (AITER writes nothing or `Null`).
    """

    key: Key
    tag: str
    block_m: int
    ksplit: int
    us1: float
    kernel1: str
    err1: str
    us2: float
    kernel2: str
    err2: str
    us: float
    run_1stage: bool
    xbf16: int
    flat: int
    tflops: str
    bw: str
    place: Place

    @property
    def is_portable(self) -> bool:
        """Whether the portable backend runs it, whatever table it stands in."""
        return is_portable(self.kernel1)

    def launch(self) -> dict[str, object]:
        """The launch fields by AITER's column names, as records hash them."""
        values = (self.block_m, self.ksplit, self.kernel1, self.kernel2, int(self.run_1stage), self.xbf16, self.flat)
        return dict(zip(LAUNCH_COLUMNS, values, strict=True))


assert tuple(field.name for field in fields(UntunedRow)) == UNTUNED_COLUMNS
