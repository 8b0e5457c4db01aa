"""Triton kernels with a fault each, for tests of what is to notice them."""

from __future__ import annotations

import triton
import triton.language as tl

from moeshapes.backends.portable.formats import to_bf16


@triton.jit
def spoil_every_tenth(out, counter):
    """Every tenth launch writes NaN to the first value of `out`, bf16. `counter` int32 counts replays too."""
    count = tl.load(counter) + 1
    tl.store(counter, count)
    if count % 10 == 0:
        tl.store(out, float("nan"))


@triton.jit
def add_slots_in_turn(slots, out, counter, topk, columns, BN: tl.constexpr):
    """kernels.add_slots as atomics on bf16 add: rounded after each slot, beginning with another one each time."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = column < columns
    first = tl.load(counter)
    total = tl.zeros((BN,), tl.float32)
    for step in range(topk):
        slot = (first + step) % topk
        value = tl.load(slots + (token * topk + slot) * columns + column, inside, other=0).to(tl.float32)
        total = to_bf16(total + value).to(tl.float32)
    tl.store(out + token * columns + column, to_bf16(total), inside)


@triton.jit
def spin_for_ever(flag):
    """Waits for `flag` int32 to become something else than 0, which it never does."""
    value = tl.load(flag, volatile=True)
    while value == 0:
        value = tl.load(flag, volatile=True)
    tl.store(flag, value + 1)


@triton.jit
def write_far_off(out, distance):
    """Writes `distance` elements behind `out`."""
    tl.store(out + distance, 1)
