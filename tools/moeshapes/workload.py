"""Production-like data for a problem: packed weights as checkpoints hold them, activations and routing of single calls.

Weights are drawn as codes, never quantised from floats: a checkpoint is packed already, and codes cost a tenth to draw.
Experts share a pool of distinct weight sets where expanding every expert would dominate. The pool is a prime number, so
that an expert index that is off (by one, or cut to 8 bits) still reads other weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from moeshapes.problem import Problem
from moeshapes.quant import (
    Quantised,
    Spec,
    as_bytes,
    code_dtype,
    fp4_encode,
    largest,
    pack_nibbles,
    weight_scale_shape,
    weight_spec,
)
from moeshapes.recipe import Format, QType

POOL_PRIMES = (31, 13, 7, 5, 3)
_LARGEST_OF_256 = 2.9
"""The outermost of 256 quantiles of a normal distribution, in standard deviations."""
_OUTLIER_SHARE, _OUTLIER_GAIN = 0.005, 20.0
_PREACTIVATION_RMS = 1.5
_REACH_OF_LIMIT = 0.6
"""Pre-activations' RMS as a share of the limit: about one in ten gates is then clamped."""

Front = Callable[[int, bool, torch.Generator], tuple[Tensor, Tensor, Tensor]]
"""What comes before the experts: for a number of tokens, production-like or plain, their activations fp32 `[M, H]`
(padded columns zero, of any magnitude), expert ids int32 and routing weights fp32 `[M, k]`."""


@dataclass(frozen=True)
class Layer:
    """One fused-MoE layer's weights.

    w1: a Quantised `[2I, H]` (I gate rows, then I up rows) a weight set; w2: `[H, I]`. `set_of[e]` is expert e's set,
    int64 `[E]`. Biases fp32 `[E, 2I]` and `[E, H]`, None without. H and I include pads, whose codes are zero.
    `amplitude` is the RMS of activations, which gives pre-activations the RMS wanted. `channel_gain` fp32 `[H]` shapes
    production-like activations. `front` draws activations and routing where the layer has a router of its own; `origin`
    says in plain data where weights come from that were not drawn.
    """

    problem: Problem
    w1: list[Quantised]
    w2: list[Quantised]
    set_of: Tensor
    bias1: Tensor | None
    bias2: Tensor | None
    amplitude: float
    channel_gain: Tensor
    front: Front | None = None
    origin: Mapping[str, Any] | None = None

    @property
    def device(self) -> torch.device:
        return self.set_of.device


@dataclass(frozen=True)
class Call:
    """One call's inputs: activations bf16 `[M, H]` (padded columns zero), topk_ids int32, topk_weights fp32 `[M, k]`.

    `probes` lists the (expert, K block) pairs that probe tokens single out.
    """

    activations: Tensor
    topk_ids: Tensor
    topk_weights: Tensor
    probes: tuple[tuple[int, int], ...] = ()

    @property
    def tokens(self) -> int:
        return self.activations.shape[0]


def generator_of(seed: int, device: torch.device) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(seed)


# --- weights


def pool_size(problem: Problem, max_elements: int) -> int:
    """How many distinct weight sets: one an expert if that fits, else the largest prime that does, at least 3."""
    elements = 3 * problem.model_dim * problem.inter_dim
    if problem.expert * elements <= max_elements:
        return problem.expert
    fitting = (prime for prime in POOL_PRIMES if prime < problem.expert and prime * elements <= max_elements)
    return next(fitting, min(POOL_PRIMES[-1], problem.expert))


def draw_layer(problem: Problem, seed: int, device: torch.device, max_elements: int) -> Layer:
    """Draws a layer; `max_elements` bounds the weights that are distinct, in elements.

    Raises ValueError where a dim is no multiple of the recipe's scale block: scales would stand for other columns.
    """
    require_whole_blocks(problem)
    generator = generator_of(seed, device)
    sets = pool_size(problem, max_elements)
    h, i = problem.model_dim, problem.inter_dim
    live_h, live_i = problem.logical_model_dim, problem.logical_inter_dim
    live_rows = torch.arange(i, device=device).repeat(2) < live_i
    w1 = [_draw_weight(problem, live_rows, h, live_h, generator) for _ in range(sets)]
    live_out = torch.arange(h, device=device) < live_h
    w2 = [_draw_weight(problem, live_out, i, live_i, generator) for _ in range(sets)]
    rms = _preactivation_rms(problem)
    return Layer(
        problem=problem,
        w1=w1,
        w2=w2,
        set_of=torch.arange(problem.expert, device=device) % sets,
        bias1=_draw_bias(problem, live_rows, rms, generator),
        bias2=_draw_bias(problem, live_out, rms, generator),
        amplitude=rms,
        channel_gain=_draw_channel_gain(problem, generator),
    )


def require_whole_blocks(problem: Problem) -> None:
    """Raises ValueError where a dim is no multiple of the recipe's scale block: scales would cover other columns."""
    block = problem.recipe.block
    for name, dim in (("model_dim", problem.model_dim), ("inter_dim", problem.inter_dim)):
        if block and dim % block:
            raise ValueError(f"{name} = {dim} is no multiple of the scale block, {block}")


def _preactivation_rms(problem: Problem) -> float:
    limit = problem.activation.limit
    return _REACH_OF_LIMIT * limit if limit else _PREACTIVATION_RMS


def _draw_weight(problem: Problem, live_rows: Tensor, k: int, live_k: int, generator: torch.Generator) -> Quantised:
    """A matrix `[rows, k]` of unit gain, dead rows and columns zero, scales as its recipe's quantiser shapes them."""
    spec = weight_spec(problem.recipe, problem.fnuz)
    rows = live_rows.shape[0]
    codes = _draw_codes(rows, k, spec, generator)
    _clear_dead(codes, live_rows, live_k // spec.number.per_byte)
    scales = _draw_scales(rows, k, live_k, spec, generator)
    if scales is not None and scales.dtype == torch.uint8:
        _clear_dead(scales, live_rows, -(-live_k // 32))
    if scales is None:
        codes = codes * live_k**-0.5
    return Quantised(spec, codes, scales)


def _code_std(spec: Spec) -> float:
    """The codes' standard deviation: the outermost is then the format's largest."""
    return 1.0 if spec.number is Format.BF16 else largest(spec.number, spec.fnuz) / _LARGEST_OF_256


def _clear_dead(tensor: Tensor, live_rows: Tensor, live_columns: int) -> None:
    bytes_view = as_bytes(tensor)
    bytes_view[:, live_columns:] = 0
    bytes_view[~live_rows] = 0


def _draw_codes(rows: int, k: int, spec: Spec, generator: torch.Generator) -> Tensor:
    """Codes whose values are normal: random indices into a table of the format's quantised quantiles."""
    device = generator.device
    quantiles = torch.special.ndtri((torch.arange(256, device=device, dtype=torch.float64) + 0.5) / 256)
    values = (quantiles * _code_std(spec)).float()
    if spec.number.per_byte == 2:
        nibbles = fp4_encode(values) if spec.number is Format.FP4 else values.round().clamp(-7, 7).to(torch.int8)
        nibbles = nibbles.view(torch.uint8) & 0xF
        pairs = torch.cartesian_prod(nibbles, nibbles)
        index = torch.randint(0, 65536, (rows * k // 2,), generator=generator, device=device, dtype=torch.int32)
        return pack_nibbles(pairs).flatten().index_select(0, index).reshape(rows, k // 2)
    dtype = code_dtype(spec)
    table = (values.round() if dtype is torch.int8 else values).to(dtype)
    index = torch.randint(0, 256, (rows * k,), generator=generator, device=device, dtype=torch.int32)
    as_stored = table.view(torch.int16 if dtype is torch.bfloat16 else torch.uint8)
    drawn: Tensor = as_stored.index_select(0, index).view(dtype)
    return drawn.reshape(rows, k)


def _draw_scales(rows: int, k: int, live_k: int, spec: Spec, generator: torch.Generator) -> Tensor | None:
    """Scales that give the matrix a gain of about one, within a factor of two of one another."""
    base = 1.0 / (_code_std(spec) * live_k**0.5)
    device = generator.device
    shape = weight_scale_shape(spec, rows, k)
    if shape is None:
        return None
    if spec.q_type is QType.PER_1X32 and spec.number is not Format.INT4:
        exponent = round(torch.tensor(base).log2().item()) + 127
        jitter = torch.randint(-1, 2, shape, generator=generator, device=device)
        return (exponent + jitter).to(torch.uint8)
    scales: Tensor = base * (0.6 + 0.8 * torch.rand(shape, generator=generator, device=device))
    return scales.to(torch.bfloat16) if spec.number is Format.INT4 else scales


def _draw_bias(problem: Problem, live: Tensor, rms: float, generator: torch.Generator) -> Tensor | None:
    if not problem.bias:
        return None
    shape = (problem.expert, live.shape[0])
    return torch.randn(shape, generator=generator, device=generator.device) * (rms / 2) * live


def _draw_channel_gain(problem: Problem, generator: torch.Generator) -> Tensor:
    """One gain a hidden channel, fp32 `[H]`: a few outlier channels, as trained models have; padded channels zero."""
    device, h = generator.device, problem.model_dim
    gain = torch.exp(0.3 * torch.randn(h, generator=generator, device=device))
    outlier = torch.rand(h, generator=generator, device=device) < _OUTLIER_SHARE
    gain = torch.where(outlier, gain * _OUTLIER_GAIN, gain)
    return gain * (torch.arange(h, device=device) < problem.logical_model_dim)


# --- calls


def draw_calls(layer: Layer, tokens: int, seed: int) -> tuple[Call, Call, Call]:
    """Three calls of `tokens` tokens, all inputs different: A production-like; B and C plain and probe tokens in turn.

    Two calls are enough to have seen all three kinds from two tokens on; at one token B is plain and C a probe.
    """
    generator = generator_of(seed, layer.device)
    front = layer.front or drawn_front(layer)
    production = _draw_call(layer, front, tokens, generator, probing=None)
    even = torch.arange(tokens, device=layer.device) % 2 == 0
    return (
        production,
        _draw_call(layer, front, tokens, generator, probing=~even),
        _draw_call(layer, front, tokens, generator, probing=even),
    )


def draw_production_calls(layer: Layer, tokens: int, seed: int, number: int) -> list[Call]:
    """So many production-like calls of `tokens` tokens, each with activations and a routing of its own."""
    generator = generator_of(seed, layer.device)
    front = layer.front or drawn_front(layer)
    return [_draw_call(layer, front, tokens, generator, probing=None) for _ in range(number)]


def drawn_front(layer: Layer) -> Front:
    """Activations shaped by the layer's channel gain, or plain, and a skewed routing that does not look at them."""
    problem, device = layer.problem, layer.device
    live = torch.arange(problem.model_dim, device=device) < problem.logical_model_dim

    def draw(tokens: int, production: bool, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        noise = torch.randn((tokens, problem.model_dim), generator=generator, device=device)
        return (noise * (layer.channel_gain if production else live), *_draw_routing(problem, tokens, generator))

    return draw


def _draw_call(layer: Layer, front: Front, tokens: int, generator: torch.Generator, probing: Tensor | None) -> Call:
    problem = layer.problem
    x, ids, weights = front(tokens, probing is None, generator)
    probes: tuple[tuple[int, int], ...] = ()
    if probing is not None:
        probes = _single_out(problem, x, ids, weights, probing, generator)
    norm = x.norm(dim=1, keepdim=True).clamp(min=1e-6)
    return Call((x * (layer.amplitude * problem.logical_model_dim**0.5 / norm)).bfloat16(), ids, weights, probes)


def _draw_routing(problem: Problem, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Top-k of skewed router logits, renormalised; shared experts in the last slots with weight 1."""
    device, shared = generator.device, problem.shared_experts
    routed, slots = problem.expert - shared, problem.topk - shared
    popularity = torch.randn(routed, generator=generator, device=device)
    logits = torch.randn((tokens, routed), generator=generator, device=device) + popularity
    top, ids = logits.topk(slots, dim=1)
    shared_ids = torch.arange(routed, problem.expert, device=device).expand(tokens, shared)
    weights = torch.cat((top.softmax(dim=1), torch.ones((tokens, shared), device=device)), dim=1)
    return torch.cat((ids, shared_ids), dim=1).int().contiguous(), weights.contiguous()


def _single_out(
    problem: Problem, x: Tensor, ids: Tensor, weights: Tensor, probing: Tensor, generator: torch.Generator
) -> tuple[tuple[int, int], ...]:
    """Turns the tokens of `probing` into probes, in place: non-zero in one K block, weighted to one expert.

    One wrong block or scale then dominates that token, instead of drowning in the noise of all others.
    """
    block, device = problem.k_block, x.device
    blocks = -(-problem.logical_model_dim // block)
    pairs = torch.randint(0, problem.expert * blocks, (ids.shape[0],), generator=generator, device=device)
    expert, k_block = (pairs // blocks).int(), pairs % blocks
    column_block = torch.arange(x.shape[1], device=device) // block
    x.mul_(~probing[:, None] | (column_block == k_block[:, None]))
    held = ids == expert[:, None]
    slot = torch.where(held.any(dim=1), held.int().argmax(dim=1), torch.zeros_like(pairs))
    chosen = torch.arange(ids.shape[1], device=device) == slot[:, None]
    ids.copy_(torch.where(probing[:, None] & chosen, expert[:, None], ids))
    weights.copy_(torch.where(probing[:, None], chosen.float(), weights))
    return tuple((int(e), int(b)) for e, b, p in zip(expert, k_block, probing, strict=True) if p)


def expert_rows(layer: Layer, topk_ids: Tensor) -> dict[int, Tensor]:
    """For each weight set that is hit the flat (token * k + slot) rows that it serves, int64."""
    sets = layer.set_of[topk_ids.flatten().long()]
    return {int(index): (sets == index).nonzero().flatten() for index in sets.unique()}
