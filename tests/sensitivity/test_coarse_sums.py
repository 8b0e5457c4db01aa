"""Kernels that add fp8 products as coarsely as Hopper's wgmma does are told from those that add in fp32.

It is why the portable kernels multiply fp8 as fp16 where Triton would use it: at 1025 tokens of DeepSeek-V3's dims an
H200 was off by 3.9 of the limit.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from moeshapes.arithmetic import default_arithmetic
from moeshapes.backends.emulate import EmulateBackend, EmulatedArm, Rows
from moeshapes.oracle import exact, modelled
from moeshapes.problem import Activation
from moeshapes.quant import Quantised, quantise
from moeshapes.verify.numerics import judge, target_of
from moeshapes.workload import Call, draw_calls, draw_layer
from sensitivity.problems import plain

_TOKENS, _SEED = 64, 7
_FRACTION_BITS = 13
_AT_ONCE = 32
_BLOCK = 128


class CoarseArm(EmulatedArm):
    """Stage 1 cuts products, and the sum so far, to 13 bits below the largest of 32 products before it adds them."""

    activations: Quantised

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        self.activations = quantise(call.activations, self._spec())
        return super().run(call, out)

    def preactivation(self, x: Tensor, rows: Rows) -> Tensor:
        weight, own = self.layer.w1[rows.set_index], self.activations
        assert own.scales is not None
        assert weight.scales is not None
        codes, total = own.codes[rows.token].float(), torch.zeros(())
        for block, columns in enumerate(torch.arange(x.shape[1]).split(_BLOCK)):
            added = _added(codes[:, columns], weight.codes[:, columns].float())
            across = weight.scales[:, block].repeat_interleave(_BLOCK)[: added.shape[1]]
            total = total + added * own.scales[rows.token, block, None] * across
        return total


def _added(a: Tensor, w: Tensor) -> Tensor:
    """`[r, n]`: the products of `[r, 128]` and `[n, 128]`."""
    total = torch.zeros(a.shape[0], w.shape[0])
    for left, right in zip(a.split(_AT_ONCE, 1), w.split(_AT_ONCE, 1), strict=True):
        products = torch.cat([left[:, None] * right[None], total[..., None]], dim=2)
        top = products.abs().amax(dim=2, keepdim=True).clamp(min=1e-30)
        unit = torch.exp2(top.log2().floor() - _FRACTION_BITS)
        total = ((products / unit).trunc() * unit).sum(dim=2)
    return total


def test_coarse_sums_are_over_the_limit_and_fp32_sums_are_not() -> None:
    small = plain("fp8_block", 0)
    deepseek = replace(small, model_dim=7168, inter_dim=256, topk=9, expert=16, activation=Activation("silu"))
    problem = replace(deepseek, doweight_stage1=False, interleave=False)
    layer = draw_layer(problem, _SEED, torch.device("cpu"), 6_000_000)
    call, prepared = draw_calls(layer, _TOKENS, _SEED)[0], EmulateBackend().prepare(layer)
    arithmetic = default_arithmetic(problem.recipe, _TOKENS)
    (own,), (stated,) = exact(layer, [call]), modelled(layer, [call], arithmetic)
    target = target_of(own, stated, problem.topk, arithmetic.modelled)
    assert judge(EmulatedArm(prepared, arithmetic).run(call), target).passed
    assert judge(CoarseArm(prepared, arithmetic).run(call), target).over_limit > 1
