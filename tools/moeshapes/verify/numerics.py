"""When an output is right: by its worst token, against the references.

With O the exact result, R_v the arithmetic that the kernel states, |.| the Euclidean norm of a token's logical columns,
s_t = max(|O_t|, 1e-3 max_t |O_t|) and b = 2^-8 (1 + sqrt(topk) / 2), a token is right if |K_t - R_v,t| <= b s_t and if
no block of 32 columns is off by more than 3 b times the token's RMS block. Where no R_v models the kernel, the limit is
|K_t - O_t| <= (floor_t + b) s_t with floor_t = |R_t - O_t| / s_t. Where O_t is zero (no local expert), so must K_t be:
s_t and floor_t are 0.

Where the intermediate is quantised, each limit also holds how far R_v moves if gates, ups and activation are larger or
smaller by what fp32 may err: a scale at its boundary then falls the other way. The constants belong to PROTOCOL: change
one, raise it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from moeshapes.oracle import Reference

PROTOCOL = 3
_BLOCK = 32
_BLOCK_ALLOWANCE = 3.0
_SMALLEST_TOKEN = 1e-3


def bound(topk: int) -> float:
    """b: bf16 output and slots, and the order in which slots are added."""
    return float(2**-8 * (1 + topk**0.5 / 2))


@dataclass(frozen=True)
class Target:
    """What one call's output is judged by: centre fp64 `[S, H]`, allowances of a token and of a block fp64 `[S]`.

    `rows` int64 `[S]` are the tokens of the output that it is for, in order; None for all.
    """

    centre: Tensor
    allowance: Tensor
    block_allowance: Tensor
    exact: Reference
    modelled: Reference
    floor: Tensor
    rows: Tensor | None = None

    def sampled(self, output: Tensor) -> Tensor:
        """The rows of an output that are compared."""
        return output if self.rows is None else output[self.rows]

    def intermediate_limit(self, topk: int) -> Tensor:
        """`[M]`: what stage 1 alone may be off by, over a token's slots."""
        size: Tensor = by_token(self.modelled.intermediate, topk).norm(dim=1)
        own = by_token(self.modelled.intermediate, topk)
        return bound(topk) * size + _apart(own, [by_token(hidden, topk) for _, hidden in self.modelled.others])


def target_of(exact: Reference, modelled: Reference, topk: int, is_modelled: bool) -> Target:
    size = exact.output.norm(dim=1)
    scale = size.clamp(min=_SMALLEST_TOKEN * float(size.max())).masked_fill(size == 0, 0.0)
    b, blocks = bound(topk), -(-exact.output.shape[1] // _BLOCK)
    floor = ((modelled.output - exact.output).norm(dim=1) / scale).masked_fill(size == 0, 0.0)
    allowed = b if is_modelled else floor + b
    allowance = allowed * scale + _apart(modelled.output, [output for output, _ in modelled.others])
    centre = modelled.output if is_modelled else exact.output
    return Target(centre, allowance, _BLOCK_ALLOWANCE * allowance / blocks**0.5, exact, modelled, floor)


def _apart(own: Tensor, others: Sequence[Tensor]) -> Tensor:
    """`[rows]`: how far the farthest of the others is from each row."""
    apart = own.new_zeros(own.shape[0])
    for other in others:
        apart = torch.maximum(apart, (other - own).norm(dim=1))
    return apart


def by_token(slots: Tensor, topk: int) -> Tensor:
    """`[M * k, I]` as `[M, k * I]`."""
    return slots.reshape(-1, topk * slots.shape[1])


@dataclass(frozen=True)
class Judgement:
    """One output against its target. `over_limit` is the worst token's error as a share of its limit: right up to 1.

    `bad_values` counts NaN and Inf; where there are any, `where` names the first and the shares are infinite.
    """

    over_limit: float
    block_over_limit: float
    worst_token: int
    bad_values: int
    where: str = ""

    @property
    def passed(self) -> bool:
        return self.bad_values == 0 and max(self.over_limit, self.block_over_limit) <= 1.0

    @property
    def worst(self) -> float:
        return max(self.over_limit, self.block_over_limit)


def judge(output: Tensor, target: Target) -> Judgement:
    """Judges an output `[M, >= H]`, padded columns ignored: all of it must be finite, and right where it is compared.

    Raises ValueError for one that lacks tokens or columns.
    """
    tokens, columns = target.centre.shape
    needed = tokens if target.rows is None else int(target.rows[-1]) + 1
    if output.shape[0] < needed or output.shape[1] < columns:
        raise ValueError(f"the output is {list(output.shape)}, which lacks some of {[needed, columns]}")
    written = (output if target.rows is not None else output[:tokens])[:, :columns]
    values = target.sampled(written).to(torch.float64)
    bad = ~written.isfinite()
    if bad.any():
        token, column = (int(index) for index in bad.nonzero()[0])
        return Judgement(float("inf"), float("inf"), token, int(bad.sum()), f"token {token}, column {column}")
    error = values - target.centre
    share = error.norm(dim=1) / target.allowance
    # No error is within any limit, that of zero included: 0 / 0 would be NaN.
    share = torch.where(error.abs().amax(dim=1) == 0, torch.zeros_like(share), share)
    blocks = block_norms(error).amax(dim=1) / target.block_allowance
    blocks = torch.where(share == 0, torch.zeros_like(blocks), blocks)
    worst = int(torch.maximum(share, blocks).argmax())
    token = worst if target.rows is None else int(target.rows[worst])
    return Judgement(float(share.max()), float(blocks.max()), token, 0)


def block_norms(error: Tensor) -> Tensor:
    """`[M, ceil(H / 32)]`: the norm of each block of 32 columns; the last may be narrower."""
    filled = torch.nn.functional.pad(error, (0, -error.shape[1] % _BLOCK))
    norms: Tensor = filled.unflatten(1, (-1, _BLOCK)).norm(dim=2)
    return norms


def worst_of(judgements: list[Judgement]) -> Judgement:
    """The judgement that decides: any with bad values, else the largest share of its limit."""
    return max(judgements, key=lambda judgement: (judgement.bad_values > 0, judgement.worst))
