"""Weights as a kernel reads them: unshuffled, un-interleaved and decoded, an expert at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.enum import QuantType
from ..utility import dtypes
from ..utility.fp4_utils import form_of_fp8
from .call import Call
from .layout import SCALE_COLUMNS, int4_scale_back, int4_unpack, scale_back, weight_back
from .mark import Mark, require_mark
from .numbers import decode, decode_e8m0, decode_fp4
from .refusal import require

_WIDE = 128


@dataclass(frozen=True)
class Weight:
    """One of the two weights. `rows` and `columns` are those of an expert's matrix, in elements."""

    name: str
    stored: Tensor
    scale: Tensor | None
    q_type: QuantType
    rows: int
    columns: int
    interleaved: bool

    def require_layout(self) -> None:
        """Refuses tensors that carry another layout's mark than that which is read."""
        is_int4 = self.stored.dtype is dtypes.i4x2
        wanted = Mark("int4 weight") if is_int4 else Mark("weight", self.interleaved)
        require_mark(self.name, self.stored, wanted)
        if self.scale is not None and self.q_type is QuantType.per_1x32:
            wanted = Mark("int4 scale") if is_int4 else Mark("scale", self.interleaved)
            require_mark(f"{self.name}_scale", self.scale, wanted)

    def expert(self, index: int) -> Tensor:
        """Expert `index`'s matrix, fp32 `[rows, columns]`: gate rows, then up rows."""
        codes = self._codes(index)
        if self.scale is None:
            return codes
        if self.q_type is QuantType.per_1x32:
            scales = self._block_scales(index)
            return (codes.view(self.rows, -1, 32) * scales.unsqueeze(-1)).view(self.rows, self.columns)
        if self.q_type is QuantType.per_1x128:
            scales = self.scale[index].repeat_interleave(_WIDE, 0).repeat_interleave(_WIDE, 1)
            return codes * scales
        return codes * self.scale[index]

    def _codes(self, index: int) -> Tensor:
        """The codes' values, unscaled."""
        if self.stored.dtype is dtypes.i4x2:
            values = int4_unpack(self.stored.view(torch.int8)[index]).view(1, self.rows, self.columns)
            return weight_back(values, False)[0].float()
        stored = self.stored if self.stored.element_size() > 1 else self.stored.view(torch.uint8)
        plain = weight_back(stored[index : index + 1], self.interleaved)[0]
        if self.stored.dtype is dtypes.fp4x2:
            return decode_fp4(plain)
        if self.stored.dtype is torch.int8:
            return plain.view(torch.int8).float()
        return decode(plain, form_of_fp8()) if self.stored.dtype is dtypes.fp8 else plain.float()

    def _block_scales(self, index: int) -> Tensor:
        """fp32 `[rows, columns / 32]`."""
        assert self.scale is not None
        groups = self.columns // 32
        if self.stored.dtype is dtypes.i4x2:
            of_expert = self.scale.view(-1, groups * self.rows)[index]
            return int4_scale_back(of_expert, 1, groups)[0].T.float()
        held = -(-groups // SCALE_COLUMNS) * SCALE_COLUMNS
        area = self.rows * held
        stored = self.scale.view(torch.uint8).view(-1)[index * area : (index + 1) * area]
        return decode_e8m0(scale_back(stored.view(1, self.rows, held), self.interleaved)[0, :, :groups])


def weights_of(call: Call, interleaved: bool) -> tuple[Weight, Weight]:
    """Both weights, w1 as the kernel of stage 1 reads it."""
    first = Weight("w1", call.w1, call.w1_scale, call.q_type, call.w1.shape[1], call.model_dim, interleaved)
    second = Weight("w2", call.w2, call.w2_scale, call.q_type, call.model_dim, call.inter_dim, False)
    for weight in (first, second):
        weight.require_layout()
    return first, second


def require_zero_pads(call: Call, index: int, w1: Tensor, w2: Tensor) -> None:
    """Refuses padding that is passed as such and holds anything but zeros (contract 5.4)."""
    gate, up = w1.split(call.inter_dim)
    live_h, live_i = call.model_dim - call.hidden_pad, call.inter_dim - call.intermediate_pad
    pads = {
        f"w1's last {call.hidden_pad} columns": w1[:, live_h:],
        f"the last {call.intermediate_pad} gate rows of w1": gate[live_i:],
        f"the last {call.intermediate_pad} up rows of w1": up[live_i:],
        f"w2's last {call.hidden_pad} rows": w2[live_h:],
        f"w2's last {call.intermediate_pad} columns": w2[:, live_i:],
    }
    for what, values in pads.items():
        require(bool((values == 0).all()), f"expert {index}: {what} are passed as padding and are not zero")
