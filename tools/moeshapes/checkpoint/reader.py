"""Reads slices of a checkpoint's tensors, and counts what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from moeshapes.checkpoint.fault import CheckpointError
from moeshapes.checkpoint.form import Form
from moeshapes.checkpoint.index import Entry, Index, unreadable
from moeshapes.checkpoint.stored import Matrix
from moeshapes.quant import Quantised, Spec, as_bytes, e8m0_decode
from moeshapes.recipe import Format, QType

_INT4_OFFSET = 0x88
"""What compressed-tensors adds to both codes of a byte to make them positive: 8 each."""


class Reader(AbstractContextManager["Reader"]):
    """Opens shards as they are needed, and maps them: pages that no slice touches are not read.

    `bytes_read` counts the slices asked for, `header_bytes` the shards' headers, `tensors` what slices were taken of.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.bytes_read = 0
        self.header_bytes = 0
        self.tensors: set[str] = set()
        self._opened: dict[str, Any] = {}
        self._stack = ExitStack()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.clear()
        self._stack.close()

    def read(self, entry: Entry, *where: slice | int) -> Tensor:
        """A copy of that part of a tensor, all of it without slices. e8m0 comes as bytes.

        Raises CheckpointError where the shard cannot be read.
        """
        try:
            held = self._shard(entry.shard).get_slice(entry.name)
            found: Tensor = held[where]
        except (SafetensorError, OSError, RuntimeError) as error:
            raise CheckpointError([unreadable(self.index.path(entry.shard), error)]) from error
        self.tensors.add(entry.name)
        self.bytes_read += found.numel() * found.element_size()
        return (found.view(torch.uint8) if entry.dtype == "F8_E8M0" else found).clone()

    def _shard(self, shard: str) -> Any:
        if shard not in self._opened:
            path = self.index.path(shard)
            self._opened[shard] = self._stack.enter_context(safe_open(path, framework="pt"))
            self.header_bytes += self.index.header_bytes(shard)
        return self._opened[shard]


def read_matrix(reader: Reader, matrix: Matrix, rows: range, columns: range) -> Quantised | Tensor:
    """Those rows and columns of a matrix: as codes under their scales where the slice begins with scale blocks, which
    may end in a part of one, whose other codes are zero; else as values, fp32.
    """
    form = matrix.form
    block_rows = form.scale_rows if form.q_type is QType.PER_1X128 else 1
    row, column = rows.start // block_rows * block_rows, columns.start // form.step * form.step
    stop = min(-(-columns.stop // form.step) * form.step, form.k)
    q = _whole(form, *_stored(reader, matrix, range(row, rows.stop), range(column, stop)))
    # Nibbles are cut in pairs.
    if (row, column) == (rows.start, columns.start) and len(columns) % 2 == 0:
        return _cut(q, len(columns))
    return q.dequantise()[rows.start - row :, columns.start - column : columns.stop - column].contiguous()


def _stored(reader: Reader, matrix: Matrix, rows: range, columns: range) -> tuple[Tensor, Tensor | None]:
    """The stored codes and scales of rows and columns that begin with blocks."""
    form = matrix.form
    expert: Sequence[int] = () if matrix.expert is None else (matrix.expert,)
    items = slice(columns.start // form.items, -(-columns.stop // form.items))
    codes = reader.read(matrix.codes, *expert, slice(rows.start, rows.stop), items)
    if matrix.scales is None:
        return codes, None
    where: list[slice | int] = [*expert]
    if form.scale_rows:
        where.append(slice(rows.start // form.scale_rows, -(-rows.stop // form.scale_rows)))
    if form.scale_k:
        where.append(slice(columns.start // form.scale_k, -(-columns.stop // form.scale_k)))
    return codes, reader.read(matrix.scales, *where)


def _whole(form: Form, codes: Tensor, scales: Tensor | None) -> Quantised:
    """Stored codes and scales as this project keeps them, K filled up to whole blocks."""
    spec = Spec(form.number, form.q_type)
    codes = codes.flatten(1)
    if form.number is Format.INT4:
        codes = codes.contiguous().view(torch.uint8) ^ _INT4_OFFSET
    elif form.number is Format.FP4:
        codes = codes.view(torch.uint8)
    if scales is None:
        return Quantised(spec, codes, None)
    if form.scale_k:
        width = scales.shape[1] * form.scale_k // form.number.per_byte
        codes = padded(codes, codes.shape[0], width)
    return Quantised(spec, codes, _scales(form, scales))


def _scales(form: Form, scales: Tensor) -> Tensor:
    if form.q_type is QType.PER_1X32:
        return scales
    wide = e8m0_decode(scales) if scales.dtype is torch.uint8 else scales.float()
    shape = {QType.PER_TOKEN: (-1, 1), QType.PER_TENSOR: (1,)}.get(form.q_type)
    return wide.reshape(shape) if shape else wide


def _cut(q: Quantised, k: int) -> Quantised:
    """The first k elements of each row, the last block's others zero."""
    as_bytes(q.codes)[:, k // q.spec.number.per_byte :] = 0
    return q


def padded(tensor: Tensor, rows: int, columns: int, value: float = 0.0) -> Tensor:
    """`tensor` in the upper left of a matrix of that value (a byte, of one-byte types); itself where it fits."""
    if tensor.shape == (rows, columns):
        return tensor
    filled = torch.empty((rows, columns), dtype=tensor.dtype)
    as_bytes(filled).fill_(value)
    as_bytes(filled)[: tensor.shape[0], : tensor.shape[1]] = as_bytes(tensor)
    return filled
