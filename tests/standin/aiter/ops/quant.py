"""AITER's torch quantisers, as far as recipes use them (contract 5.1 and 6.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..standin.numbers import Rounding, decode_e8m0, scale_byte
from ..standin.refusal import require
from ..utility import dtypes
from ..utility.fp4_utils import ROUND_UP, e8m0_shuffle, f32_to_mxfp4
from .enum import QuantType

_BLOCK = 32


def _largest(dtype: torch.dtype) -> float:
    return float((torch.finfo if dtype.is_floating_point else torch.iinfo)(dtype).max)


def pertoken_quant(
    x: Tensor,
    scale: Tensor | None = None,
    x_scale: Tensor | None = None,
    scale_dtype: torch.dtype = dtypes.fp32,
    quant_dtype: torch.dtype = dtypes.i8,
    dtypeMax: float | None = None,  # noqa: N803
) -> tuple[Tensor, Tensor]:
    """Codes and one scale for the last axis."""
    values = x.to(torch.float32) if x_scale is None else x.to(torch.float32) * x_scale
    if scale is None:
        scale = values.abs().amax(dim=-1, keepdim=True) / (dtypeMax or _largest(quant_dtype))
        scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (values / scale).to(quant_dtype), scale.to(scale_dtype)


def per_tensor_quant(
    x: Tensor,
    scale: Tensor | None = None,
    scale_dtype: torch.dtype = dtypes.fp32,
    quant_dtype: torch.dtype = dtypes.i8,
    dtypeMax: float | None = None,  # noqa: N803
) -> tuple[Tensor, Tensor]:
    """Codes and one scale `[1]` for all."""
    values = x.to(torch.float32)
    if scale is None:
        scale = values.abs().max() / (dtypeMax or _largest(quant_dtype))
    return (values / scale).to(quant_dtype), scale.view(1).to(scale_dtype)


def _blocks_and_scale(x: Tensor, number: str) -> tuple[Tensor, Tensor]:
    """fp32 values divided by their e8m0 scales, in x's shape, and the bytes `[rows, K / 32]`."""
    blocks = x.to(torch.float32).reshape(-1, _BLOCK)
    byte = scale_byte(blocks.abs().amax(dim=1, keepdim=True), Rounding(number, "1x32"))
    return (blocks / decode_e8m0(byte)).view(x.shape), byte.view(-1, x.shape[-1] // _BLOCK)


def per_1x32_f4_quant(
    x: Tensor,
    scale: Tensor | None = None,
    quant_dtype: torch.dtype = dtypes.fp4x2,
    shuffle: bool = False,
    pack_dim: int = -1,
    round_mode: int = ROUND_UP,
) -> tuple[Tensor, Tensor]:
    """Packed codes `[..., K/2]` and e8m0 scales `[rows, K / 32]`."""
    require(pack_dim == -1 and int(round_mode) == ROUND_UP, "per_1x32_f4_quant: the stand-in packs and rounds one way")
    scaled, byte = _blocks_and_scale(x, "fp4")
    stored = e8m0_shuffle(byte) if shuffle else byte
    assert stored is not None
    return f32_to_mxfp4(scaled), stored.view(dtypes.fp8_e8m0)


def per_1x32_f8_scale_f8_quant(
    x: Tensor,
    scale: Tensor | None = None,
    quant_dtype: torch.dtype = dtypes.fp8,
    scale_type: torch.dtype = dtypes.fp32,
    shuffle: bool = False,
) -> tuple[Tensor, Tensor]:
    """fp8 codes `[..., K]` and e8m0 scales `[rows, K / 32]`."""
    require(scale_type is dtypes.fp8_e8m0, "per_1x32_f8_scale_f8_quant: recipes have e8m0 scales")
    scaled, byte = _blocks_and_scale(x, "fp8_fnuz" if dtypes.fp8 is torch.float8_e4m3fnuz else "fp8")
    stored = e8m0_shuffle(byte) if shuffle else byte
    assert stored is not None
    return scaled.to(quant_dtype), stored.view(dtypes.fp8_e8m0)


def per_1x32_i4_quant(weight: Tensor, group_size: int = 32) -> tuple[Tensor, Tensor]:
    """int8 values in [-7, 7] and bf16 scales, groups before rows: `[..., K / 32, N]`."""
    groups = weight.unflatten(-1, (-1, group_size))
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-6) / 7.0
    codes = (groups / scale).round().clamp(-7, 7).to(dtypes.i8)
    return codes.view(weight.shape), scale.squeeze(-1).transpose(-1, -2).contiguous().to(dtypes.bf16)


def _no_quant(x: Tensor, **_: object) -> tuple[Tensor, None]:
    return x, None


def _per_1x128(x: Tensor, scale: Tensor | None = None, quant_dtype: torch.dtype = dtypes.i8) -> tuple[Tensor, Tensor]:
    codes, scales = pertoken_quant(x.view(-1, 128), scale=scale, quant_dtype=quant_dtype)
    return codes.view(x.shape), scales.view(x.shape[0], -1)


def _unsupported(q_type: QuantType, *_: object, **__: object) -> tuple[Tensor, Tensor]:
    raise NotImplementedError(f"unsupported quant type qType={q_type!r}")


def get_torch_quant(qType: QuantType) -> Callable[..., tuple[Tensor, Tensor | None]]:  # noqa: N803
    """The quantiser of activations of that kind."""
    known: dict[QuantType, Callable[..., tuple[Tensor, Tensor | None]]] = {
        QuantType.No: _no_quant,
        QuantType.per_Tensor: per_tensor_quant,
        QuantType.per_Token: pertoken_quant,
        QuantType.per_1x32: per_1x32_f4_quant,
        QuantType.per_1x128: _per_1x128,
    }
    return known.get(qType, partial(_unsupported, qType))
