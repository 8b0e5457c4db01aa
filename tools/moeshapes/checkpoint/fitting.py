"""Weights as a checkpoint has them, padded and stacked in the form that a recipe's kernels take."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from moeshapes.checkpoint.reader import padded
from moeshapes.quant import WIDE_BLOCK, Quantised, Spec, as_bytes, fp8_dtype, quantise_weight, weight_scale_shape
from moeshapes.recipe import Format, QType

_FN_NAN, _FN_MINUS_ZERO = 0x7F, 0x80
_LARGEST_E8M0 = 254
_NOT_FINITE = "the checkpoint has weights that are NaN or infinite"


def fitted(parts: Sequence[Quantised | Tensor], rows: int, k: int, spec: Spec) -> tuple[Quantised, bool]:
    """The parts one below the other, each in the upper left of `[rows, k]`, in the form of `spec`; and whether they
    were quantised anew.

    Codes and scales stay as they are where all parts are in that form already. Raises ValueError for weights that are
    NaN or infinite.
    """
    if not all(_is_finite(part) for part in parts if isinstance(part, Quantised)):
        raise ValueError(_NOT_FINITE)
    native = [part for part in (_in_flavour(part, spec) for part in parts) if part is not None]
    if len(native) == len(parts) and _share_scales(native):
        return _stacked([_padded(part, rows, k) for part in native]), False
    values = torch.cat([padded(_values(part)[:, :k], rows, k) for part in parts])
    return quantise_weight(finite(values), spec), True


def finite(values: Tensor) -> Tensor:
    """The values themselves. Raises ValueError where one is NaN or infinite."""
    if not values.isfinite().all():
        raise ValueError(_NOT_FINITE)
    return values


def _is_finite(part: Quantised) -> bool:
    """Whether codes and scales are; every code of four bits and of int8 is."""
    codes, scales = part.codes, part.scales
    if part.spec.number is Format.FP8 and bool(((as_bytes(codes) & _FN_NAN) == _FN_NAN).any()):
        return False
    if part.spec.is_plain and not codes.isfinite().all():
        return False
    if scales is None:
        return True
    return bool((scales <= _LARGEST_E8M0 if scales.dtype is torch.uint8 else scales.isfinite()).all())


def _values(part: Quantised | Tensor) -> Tensor:
    return part.dequantise() if isinstance(part, Quantised) else part


def _in_flavour(part: Quantised | Tensor, spec: Spec) -> Quantised | None:
    """The part under `spec`, None where other codes would be needed. fp8 becomes fnuz by its scales alone."""
    if not isinstance(part, Quantised) or (part.spec.number, part.spec.q_type) != (spec.number, spec.q_type):
        return None
    if spec.number is Format.FP8 and spec.fnuz:
        return _as_fnuz(part, spec)
    kept = {Format.BF16: part.codes, Format.INT4: part.scales}.get(spec.number)
    return part if kept is None or kept.dtype is torch.bfloat16 else None


def _as_fnuz(part: Quantised, spec: Spec) -> Quantised | None:
    """e4m3fn codes read as e4m3fnuz are half as large: scales double. None where a scale cannot."""
    codes, scales = part.codes.view(torch.uint8), part.scales
    assert scales is not None
    if scales.dtype is torch.uint8 and bool((scales >= _LARGEST_E8M0).any()):
        return None
    # There is no minus zero in fnuz: its code is NaN.
    flavoured = torch.where(codes == _FN_MINUS_ZERO, 0, codes).view(fp8_dtype(True))
    return Quantised(spec, flavoured, scales + 1 if scales.dtype is torch.uint8 else scales * 2)


def _share_scales(parts: Sequence[Quantised]) -> bool:
    """Whether the parts can stand under one another: a scale of the whole matrix must be that of all."""
    if parts[0].spec.q_type is not QType.PER_TENSOR:
        return True
    first = parts[0].scales
    assert first is not None
    return all(part.scales is not None and torch.equal(part.scales, first) for part in parts)


def _padded(part: Quantised, rows: int, k: int) -> Quantised:
    """With zeros below and to the right, under the scales that the quantiser gives zeros."""
    width = k // part.spec.number.per_byte
    codes = padded(part.codes[:, :width], rows, width)
    scales, shape = part.scales, weight_scale_shape(part.spec, rows, k)
    if scales is None or shape is None or part.spec.q_type is QType.PER_TENSOR:
        return Quantised(part.spec, codes, scales)
    scale_rows, scale_k = shape
    return Quantised(part.spec, codes, padded(scales[:, :scale_k], scale_rows, scale_k, _scale_of_zeros(part.spec)))


def _scale_of_zeros(spec: Spec) -> float:
    scales = quantise_weight(torch.zeros((WIDE_BLOCK, WIDE_BLOCK)), spec).scales
    assert scales is not None
    return float(scales.flatten()[0])


def _stacked(parts: Sequence[Quantised]) -> Quantised:
    first = parts[0]
    codes = torch.cat([as_bytes(part.codes) for part in parts]).view(first.codes.dtype)
    if first.scales is None or first.spec.q_type is QType.PER_TENSOR:
        return Quantised(first.spec, codes, first.scales)
    return Quantised(first.spec, codes, torch.cat([part.scales for part in parts if part.scales is not None]))
