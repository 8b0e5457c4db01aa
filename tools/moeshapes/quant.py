"""Quantisers of every recipe, as AITER rounds (contract 6.3), in plain torch on any device.

A quantiser takes the last axis as K. Scales are powers of two in e8m0 bytes for 1x32 blocks, fp32 for everything wider,
and bf16 for int4 groups. Nothing here knows of experts or layouts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cache

import torch
from torch import Tensor

from moeshapes.recipe import Format, QType, Recipe

MX_BLOCK = 32
WIDE_BLOCK = 128
FP4_MAX = 6.0
INT4_MAX = 7.0
_E8M0_NAN = 255
_E8M0_BIAS = 127


class ScaleRule(str, Enum):
    """How an e8m0 scale follows from a block's largest magnitude.

    ROUND_UP is the quantisers' rule, 2^ceil(log2(amax / max)). FUSED is that of FlyDSL's fused stage-1 epilogue, the
    exponent of amax rounded at half its binade, less the format's own; for fp8 it is one exponent larger for a quarter
    of all blocks.
    """

    ROUND_UP = "round_up"
    FUSED = "fused"


@dataclass(frozen=True)
class Spec:
    """How a tensor is quantised. `fnuz` picks fp8's flavour; `rule` matters for 1x32 scales only."""

    number: Format
    q_type: QType
    fnuz: bool = False
    rule: ScaleRule = ScaleRule.ROUND_UP

    @property
    def is_plain(self) -> bool:
        return self.number is Format.BF16

    def with_rule(self, rule: ScaleRule) -> Spec:
        return replace(self, rule=rule)


@dataclass(frozen=True)
class Quantised:
    """Codes and scales of a tensor `[..., K]`.

    codes: bf16 `[..., K]` (plain), float8 `[..., K]`, int8 `[..., K]`, or packed uint8 `[..., K/2]` (fp4, int4).
    scales: None (plain); e8m0 bytes uint8 `[..., K/32]`; bf16 `[..., K/32]` (int4); fp32 `[..., K/128]`, `[..., 1]`
    (per token), `[1]` (per tensor); fp32 `[R/128, K/128]` for 128x128 weight blocks.
    """

    spec: Spec
    codes: Tensor
    scales: Tensor | None

    def dequantise(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The values, `[..., K]` in `dtype`: exact in fp64, and in fp32 unless scales are fp32: products round."""
        values = decode(self.codes, self.spec.number, dtype)  # a fresh tensor wherever there are scales
        return values if self.scales is None else _scaled(values, self._multipliers(dtype))

    def _multipliers(self, dtype: torch.dtype) -> Tensor:
        assert self.scales is not None
        if self.spec.q_type is QType.PER_1X32 and self.spec.number is not Format.INT4:
            return e8m0_decode(self.scales, dtype)
        return self.scales.to(dtype)

    @property
    def k(self) -> int:
        """Elements of the last axis."""
        return self.codes.shape[-1] * self.spec.number.per_byte

    def slab(self, start: int, stop: int) -> Quantised:
        """Rows of a matrix `[R, K]`; `start` a multiple of 128 where scales cover 128 rows."""
        scales = self.scales
        if scales is not None and scales.shape[0] == self.codes.shape[0] and scales.dim() > 1:
            scales = scales[start:stop]
        elif scales is not None and scales.dim() > 1:
            scales = scales[start // WIDE_BLOCK : -(-stop // WIDE_BLOCK)]
        return Quantised(self.spec, self.codes[start:stop], scales)


def activation_spec(recipe: Recipe, fnuz: bool) -> Spec:
    """How a recipe quantises activations, and the intermediate between the stages."""
    return Spec(recipe.a, recipe.q_type if recipe.quantises_activations else QType.NO, fnuz)


def weight_spec(recipe: Recipe, fnuz: bool) -> Spec:
    """How a recipe quantises weights."""
    return Spec(recipe.w, recipe.q_type, fnuz)


def as_bytes(codes: Tensor) -> Tensor:
    """Codes of one byte as uint8, others as they are: of fp8, torch and Triton can do little."""
    return codes.view(torch.uint8) if codes.element_size() == 1 else codes


def code_dtype(spec: Spec) -> torch.dtype:
    """The type that codes are stored in: of four bits, two in a byte."""
    plain = {Format.FP8: fp8_dtype(spec.fnuz), Format.INT8: torch.int8, Format.BF16: torch.bfloat16}
    return plain.get(spec.number, torch.uint8)


def weight_scale_shape(spec: Spec, rows: int, k: int) -> tuple[int, ...] | None:
    """The shape of the scales of a weight matrix `[rows, k]`; None where it has none."""
    return {
        QType.NO: None,
        QType.PER_TENSOR: (1,),
        QType.PER_TOKEN: (rows, 1),
        QType.PER_1X128: (rows // WIDE_BLOCK, k // WIDE_BLOCK),
        QType.PER_1X32: (rows, k // MX_BLOCK),
    }[spec.q_type]


def quantise(x: Tensor, spec: Spec) -> Quantised:
    """Quantises `x` `[..., K]` (any float dtype; values are taken in fp32).

    K must be a multiple of the block. Raises ValueError where it is not.
    """
    if spec.is_plain:
        return Quantised(spec, x.to(torch.bfloat16), None)
    if spec.number is Format.INT4:
        return _quantise_int4(x, spec)
    values = x.to(torch.float32)
    if spec.q_type is QType.PER_1X32:
        return _quantise_mx(values, spec)
    return _quantise_fp32_scaled(values, spec)


def quantise_weight(w: Tensor, spec: Spec) -> Quantised:
    """Quantises a weight matrix `[R, K]`: in blocks of 128x128 where `spec` has wide blocks, else as `quantise` does.

    Raises ValueError where R or K is no multiple of the block.
    """
    return (quantise_weight_blocks if spec.q_type is QType.PER_1X128 else quantise)(w, spec)


def quantise_weight_blocks(w: Tensor, spec: Spec) -> Quantised:
    """Quantises a weight matrix `[R, K]` in 128x128 blocks. Scales fp32 `[R/128, K/128]`.

    Raises ValueError where R or K is no multiple of 128.
    """
    rows, k = w.shape
    if rows % 128 or k % 128:
        raise ValueError(f"a weight of {rows} x {k} is not made of 128x128 blocks")
    blocks = w.to(torch.float32).reshape(rows // 128, 128, k // 128, 128)
    scales = _fp32_scale(blocks.abs().amax(dim=(1, 3)), spec)
    codes = _cast(blocks / scales[:, None, :, None], spec)
    return Quantised(spec, codes.reshape(rows, k), scales)


def largest(number: Format, fnuz: bool = False) -> float:
    """The largest magnitude that the format's quantiser maps to."""
    fp8 = 240.0 if fnuz else 448.0
    return {Format.FP8: fp8, Format.FP4: FP4_MAX, Format.INT8: 127.0, Format.INT4: INT4_MAX}[number]


def fp8_dtype(fnuz: bool) -> torch.dtype:
    return torch.float8_e4m3fnuz if fnuz else torch.float8_e4m3fn


# --- scales


def _over(amax: Tensor, top: float) -> Tensor:
    """amax / top, rounded once on every device: torch multiplies by 1 / top where it is given a number on a GPU."""
    return amax / torch.full((), top, dtype=amax.dtype, device=amax.device)


def e8m0_scale(amax: Tensor, number: Format, fnuz: bool, rule: ScaleRule) -> Tensor:
    """The e8m0 byte of each block from its largest magnitude (fp32). Zero gives 0; NaN and Inf give 255 (NaN)."""
    if rule is ScaleRule.ROUND_UP:
        bits = _over(amax, largest(number, fnuz)).view(torch.int32)
        exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).int()
    else:
        lead = 2 if number is Format.FP4 else 8
        exponent = ((amax.view(torch.int32) + 0x400000) >> 23) - lead
    byte = exponent.clamp(0, _E8M0_NAN - 1).to(torch.uint8)
    return torch.where(amax.isfinite(), byte, torch.full_like(byte, _E8M0_NAN))


def e8m0_decode(byte: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """2^(byte - 127) in fp32 or fp64; byte 0 is the fp32 subnormal 2^-127, 255 is NaN."""
    table = _e8m0_table(byte.device, dtype)
    return table.index_select(0, byte.reshape(-1).int()).reshape(byte.shape)


@cache
def _e8m0_table(device: torch.device, dtype: torch.dtype) -> Tensor:
    exponent = torch.arange(256, dtype=torch.float64) - _E8M0_BIAS
    values = torch.exp2(exponent)
    values[_E8M0_NAN] = torch.nan
    return values.to(dtype).to(device)


def _fp32_scale(amax: Tensor, spec: Spec) -> Tensor:
    scale = _over(amax, largest(spec.number, spec.fnuz))
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def _scaled(values: Tensor, multipliers: Tensor) -> Tensor:
    """`[..., K]` times scales `[..., K/b]`, `[..., 1]`, `[1]`, or `[..., R, K]` times `[..., R/128, K/128]`, in place.

    Scales `[..., 1, 1]` are of all rows.
    """
    if multipliers.numel() == 1:
        return values.mul_(multipliers)
    if multipliers.shape[:-1] != values.shape[:-1] and multipliers.shape[-2] != 1:
        multipliers = multipliers.repeat_interleave(WIDE_BLOCK, dim=-2)[..., : values.shape[-2], :]
    if multipliers.shape[-1] == 1:
        return values.mul_(multipliers)
    grouped: Tensor = values.unflatten(-1, (multipliers.shape[-1], -1))
    grouped.mul_(multipliers.unsqueeze(-1))
    return values


# --- quantisers


def _blocks(values: Tensor, width: int) -> Tensor:
    if values.shape[-1] % width:
        raise ValueError(f"K = {values.shape[-1]} is no multiple of the scale block, {width}")
    blocks: Tensor = values.unflatten(-1, (-1, width))
    return blocks


def _quantise_mx(values: Tensor, spec: Spec) -> Quantised:
    blocks = _blocks(values, MX_BLOCK)
    scales = e8m0_scale(blocks.abs().amax(dim=-1), spec.number, spec.fnuz, spec.rule)
    scaled = (blocks / e8m0_decode(scales).unsqueeze(-1)).flatten(-2)
    return Quantised(spec, _cast(scaled, spec), scales)


def _quantise_fp32_scaled(values: Tensor, spec: Spec) -> Quantised:
    if spec.q_type is QType.PER_1X128:
        blocks = _blocks(values, 128)
        scales = _fp32_scale(blocks.abs().amax(dim=-1), spec)
        return Quantised(spec, _cast((blocks / scales.unsqueeze(-1)).flatten(-2), spec), scales)
    magnitudes = values.abs()
    amax = magnitudes.amax(dim=-1, keepdim=True) if spec.q_type is QType.PER_TOKEN else magnitudes.amax().reshape(1)
    scales = _fp32_scale(amax, spec)
    return Quantised(spec, _cast(values / scales, spec), scales)


def _quantise_int4(x: Tensor, spec: Spec) -> Quantised:
    """Group-32 int4: the scale is computed and kept in the weight's own dtype (bf16), codes rounded to [-7, 7]."""
    blocks = _blocks(x.to(torch.bfloat16), MX_BLOCK)
    scales = _over(blocks.abs().amax(dim=-1).clamp(min=1e-6), INT4_MAX)
    codes = (blocks / scales.unsqueeze(-1)).round().clamp(-INT4_MAX, INT4_MAX)
    return Quantised(spec, pack_nibbles(codes.flatten(-2).to(torch.int8).view(torch.uint8) & 0xF), scales)


def _cast(scaled: Tensor, spec: Spec) -> Tensor:
    """Values on the format's own grid as its codes. int8 truncates, as the conversion that AITER uses does."""
    if spec.number is Format.FP4:
        return pack_nibbles(fp4_encode(scaled))
    top = largest(spec.number, spec.fnuz)
    dtype = torch.int8 if spec.number is Format.INT8 else fp8_dtype(spec.fnuz)
    return scaled.clamp(-top, top).to(dtype)


def fp4_encode(values: Tensor) -> Tensor:
    """e2m1 codes (uint8, 0..15) of fp32 values: nearest, ties to even, saturating at 6. NaN becomes 6."""
    magnitude = values.abs().nan_to_num(nan=FP4_MAX).clamp(max=FP4_MAX)
    fine = (magnitude * 2).round()
    medium = magnitude.round() + 2
    coarse = (magnitude / 2).round() + 4
    code = torch.where(magnitude < 2, fine, torch.where(magnitude < 4, medium, coarse)).to(torch.uint8)
    return code | (values.signbit().to(torch.uint8) << 3)


# --- codes


def pack_nibbles(codes: Tensor) -> Tensor:
    """`[..., K]` codes of four bits to `[..., K/2]` bytes, the even K index in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


_FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_NIBBLE_VALUES = {
    Format.FP4: (*_FP4_VALUES, *(-value for value in _FP4_VALUES)),
    Format.INT4: tuple(float(code if code < 8 else code - 16) for code in range(16)),
}


@cache
def _pair_table(number: Format, fnuz: bool, device: torch.device) -> Tensor:
    """For each pair of codes its two values in bf16, as one 32-bit word: half as many gathers as one value at a time.

    A pair is a byte of two nibbles, or two fp8 bytes as one 16-bit word. Each fp4, int4 and fp8 value is exact in bf16.
    """
    bits = 8 if number is Format.FP8 else 4
    code = torch.arange(1 << bits, dtype=torch.uint8, device=device)
    values = code.view(fp8_dtype(fnuz)) if number is Format.FP8 else _nibble_values(number, device)
    pair = torch.arange(1 << 2 * bits, device=device)
    halves = values.bfloat16().view(torch.int16)
    pairs = torch.stack((halves[pair & ((1 << bits) - 1)], halves[pair >> bits]), dim=-1).contiguous()
    return pairs.view(torch.int32).flatten()


def _nibble_values(number: Format, device: torch.device) -> Tensor:
    return torch.tensor(_NIBBLE_VALUES[number], dtype=torch.float32, device=device)


def decode(codes: Tensor, number: Format, dtype: torch.dtype = torch.float32) -> Tensor:
    """The codes' values before scaling, `[..., K]` in `dtype`: a fresh tensor unless codes are of that type."""
    packed = number in _NIBBLE_VALUES
    if not packed and (number is not Format.FP8 or codes.shape[-1] % 2):
        return codes.to(dtype)
    fnuz = codes.dtype is torch.float8_e4m3fnuz
    index = codes.reshape(-1).int() if packed else codes.contiguous().view(torch.int16).reshape(-1).int() & 0xFFFF
    pairs = _pair_table(number, fnuz, codes.device).index_select(0, index).view(torch.bfloat16)
    return pairs.reshape(*codes.shape[:-1], codes.shape[-1] * (2 if packed else 1)).to(dtype)
