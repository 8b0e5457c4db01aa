"""Each row times the weights of its expert, in fp64: what the references spend their time on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from moeshapes.quant import Quantised

EXACT = torch.float64
_SLAB_ELEMENTS = 1 << 21
"""Of a weight that are expanded at a time on a CPU: what stays in cache costs half of what goes through memory."""
_GROUP_BYTES = 1 << 31
"""Of weights that are expanded at a time on a GPU, which has time for few launches only."""


@dataclass
class Work:
    """Rows to multiply: of `inputs` `[n, k]`, row r // `per` for slot r. `rows_of_set` names the slots of each weight
    set, int64. `result` `[slots, width]` is filled by `multiply`; slots of no set are zero.
    """

    inputs: Tensor
    per: int
    rows_of_set: Mapping[int, Tensor]
    width: int
    result: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.result = self.inputs.new_zeros(self.inputs.shape[0] * self.per, self.width)


def multiply(weights: Sequence[Quantised], spans: Sequence[range], works: Sequence[Work]) -> None:
    """x W^T for each work's rows x over the rows of W `[R, K]` that `spans` name, side by side; k may leave pads out.

    All works share the expansion of each weight set.
    """
    if weights[0].codes.is_cuda:
        _by_groups(weights, spans, works)
    else:
        _by_slabs(weights, spans, works)


def _by_slabs(weights: Sequence[Quantised], spans: Sequence[range], works: Sequence[Work]) -> None:
    for index, weight in enumerate(weights):
        users = [(work, work.rows_of_set[index]) for work in works if index in work.rows_of_set]
        inputs = [work.inputs[rows // work.per] for work, rows in users]
        for (work, rows), product in zip(users, _products(weight, spans, inputs), strict=True):
            work.result[rows] = product


def _products(weight: Quantised, spans: Sequence[range], inputs: Sequence[Tensor]) -> list[Tensor]:
    results = [x.new_empty(x.shape[0], sum(map(len, spans))) for x in inputs]
    column, step = 0, max(_SLAB_ELEMENTS // weight.k // 128, 1) * 128
    for span in spans if inputs else ():
        for start in range(span.start, span.stop, step):
            slab = weight.slab(start, min(start + step, span.stop)).dequantise(EXACT)
            for x, result in zip(inputs, results, strict=True):
                result[:, column : column + slab.shape[0]] = x @ slab[:, : x.shape[1]].T
            column += slab.shape[0]
    return results


def _by_groups(weights: Sequence[Quantised], spans: Sequence[range], works: Sequence[Work]) -> None:
    """Sets with about as many rows side by side, since all of a group are filled up to the most."""
    wanted = {index for work in works for index in work.rows_of_set}
    most = {index: max(_count(work, index) for work in works) for index in wanted}
    size = max(1, _GROUP_BYTES // (8 * weights[0].codes.shape[0] * weights[0].k))
    order = sorted(wanted, key=lambda index: -most[index])
    for group in (order[first : first + size] for first in range(0, len(order), size)):
        expanded = _expanded([weights[index] for index in group], spans)
        for work in works:
            _multiply_group(work, group, expanded)


def _count(work: Work, index: int) -> int:
    return work.rows_of_set[index].numel() if index in work.rows_of_set else 0


def _expanded(weights: Sequence[Quantised], spans: Sequence[range]) -> Tensor:
    """The sets' rows that `spans` name, `[sets, rows, K]`."""
    scales = None
    if weights[0].scales is not None:
        scales = torch.stack([weight.scales for weight in weights if weight.scales is not None])
        scales = scales.unsqueeze(1) if scales.dim() == 2 else scales
    values = Quantised(weights[0].spec, torch.stack([weight.codes for weight in weights]), scales).dequantise(EXACT)
    parts = [values[:, span.start : span.stop] for span in spans]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _multiply_group(work: Work, group: Sequence[int], expanded: Tensor) -> None:
    none = work.result.new_empty(0, dtype=torch.int64)
    rows = [work.rows_of_set.get(index, none) for index in group]
    if not any(each.numel() for each in rows):
        return
    filled = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    x = work.inputs[filled.clamp(min=0) // work.per]
    product = x @ expanded[:, :, : x.shape[2]].transpose(1, 2)
    live = filled >= 0
    work.result[filled[live]] = product[live]
