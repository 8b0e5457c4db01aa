"""Benchmark of the reference against the loops that tests of fused MoE usually compare with.

Each contender runs in a process of its own, so that its peak memory is its own, over the same packed weights. Every
expert is distinct: the verifier's own layers share a pool of weight sets, which would flatter the reference.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from moeshapes import oracle
from moeshapes.activation import activate
from moeshapes.problem import Activation, Problem
from moeshapes.quant import MX_BLOCK, e8m0_decode
from moeshapes.verify.child import printed_by
from moeshapes.verify.job import EVERY_EXPERT
from moeshapes.workload import Call, Layer, draw_calls, draw_layer

PROBLEM = Problem(
    model_dim=5120,
    inter_dim=640,
    expert=385,
    topk=7,
    recipe_name="a8w4",
    fnuz=False,
    activation=Activation("silu", limit=10.0),
    intermediate_pad=64,
    interleave=True,
    shared_experts=1,
)
TOKENS = 256
SEED = 1
_FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])


@dataclass(frozen=True)
class Figure:
    """Wall seconds of one run, weights expanded within it; the process's peak memory in GiB, packed weights in it."""

    contender: str
    seconds: float
    peak_gib: float
    output_norm: float


def reference(layer: Layer, call: Call) -> Tensor:
    """This project's, in fp64."""
    return oracle.exact(layer, [call])[0].output


def usual_loop(layer: Layer, call: Call) -> Tensor:
    """The usual one: each expert expanded to fp32, its tokens masked, multiplied."""
    return _loop(layer, call, lambda expert: (_expand(layer, expert, first=True), _expand(layer, expert, first=False)))


def expanded_loop(layer: Layer, call: Call) -> Tensor:
    """The same loop over weights that are all expanded beforehand, within the time that is measured."""
    weights = [(_expand(layer, e, first=True), _expand(layer, e, first=False)) for e in range(layer.problem.expert)]
    return _loop(layer, call, lambda expert: weights[expert])


def _expand(layer: Layer, expert: int, first: bool) -> Tensor:
    packed = (layer.w1 if first else layer.w2)[int(layer.set_of[expert])]
    assert packed.scales is not None
    nibbles = torch.stack((packed.codes & 0xF, packed.codes >> 4), dim=-1).flatten(-2)
    scales: Tensor = e8m0_decode(packed.scales).repeat_interleave(MX_BLOCK, dim=-1)
    return _FP4[nibbles.long()] * scales


def _loop(layer: Layer, call: Call, weights_of: Callable[[int], tuple[Tensor, Tensor]]) -> Tensor:
    problem, topk = layer.problem, layer.problem.topk
    x = call.activations.float().repeat_interleave(topk, dim=0)
    flat, slots = call.topk_ids.flatten(), torch.zeros(x.shape)
    for expert in range(problem.expert):
        mask = flat == expert
        if mask.any():
            w1, w2 = weights_of(expert)
            gate_up: Tensor = x[mask] @ w1.T
            gate, up = gate_up.split(problem.inter_dim, dim=1)
            slots[mask] = activate(gate, up, problem.activation) @ w2.T
    weighted = slots.unflatten(0, (-1, topk)) * call.topk_weights.unsqueeze(-1)
    output: Tensor = weighted.sum(dim=1)
    return output


REFERENCE = "reference (fp64)"
CONTENDERS: dict[str, Callable[[Layer, Call], Tensor]] = {
    REFERENCE: reference,
    "usual loop (fp32)": usual_loop,
    "loop over expanded weights (fp32)": expanded_loop,
}


def measure(contender: str) -> Figure:
    """Runs a contender in a process of its own. Raises RuntimeError where that process fails, as for lack of memory."""
    return Figure(**json.loads(printed_by("bench", contender)))


def needed_gib(contender: str) -> float:
    """About how much memory a contender takes, so that a small machine can leave one out."""
    expanded = 4 * 3 * PROBLEM.expert * PROBLEM.model_dim * PROBLEM.inter_dim / (1 << 30)
    return expanded + 7 if CONTENDERS[contender] is expanded_loop else 3.0


def available_gib() -> float:
    """The memory that is free for a new process, as Linux tells; plenty where it does not."""
    try:
        meminfo = Path("/proc/meminfo").read_text()
    except OSError:
        return float("inf")
    free = next(line for line in meminfo.splitlines() if line.startswith("MemAvailable"))
    return int(free.split()[1]) / (1 << 20)


def main() -> None:
    contender = sys.argv[1]
    with torch.inference_mode():
        layer = draw_layer(PROBLEM, SEED, torch.device("cpu"), max_elements=EVERY_EXPERT)
        call = draw_calls(layer, TOKENS, SEED)[0]
        started = time.perf_counter()
        output = CONTENDERS[contender](layer, call)
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    print(
        json.dumps({"contender": contender, "seconds": seconds, "peak_gib": peak, "output_norm": float(output.norm())})
    )


if __name__ == "__main__":
    main()
