"""The activations between the two stages, in whatever precision they are given (contract 6.1)."""

from __future__ import annotations

import torch
from torch import Tensor

from moeshapes.problem import Activation


def activate(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    """act(gate) combined with up, elementwise; the limit clamps gate from above and up on both sides first.

    Raises ValueError for an activation that is not known or lacks a parameter: a default would hide a wrong model.
    """
    if activation.kind == "swiglu":
        _required(activation.limit, "swiglu_limit")
    if activation.limit:
        gate = gate.clamp(max=activation.limit)
        up = up.clamp(-activation.limit, activation.limit)
    if activation.kind == "silu":
        return torch.nn.functional.silu(gate) * up
    if activation.kind == "gelu":
        return torch.nn.functional.gelu(gate) * up
    if activation.kind == "swiglu":
        return gate * torch.sigmoid(_required(activation.alpha, "swiglu_alpha") * gate) * (up + 1)
    if activation.kind == "situv2":
        return _situv2(gate, up, activation)
    raise ValueError(f"no activation is called {activation.kind}")


def _situv2(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    beta = _required(activation.beta, "situ_beta")
    linear_beta = _required(activation.linear_beta, "situ_linear_beta")
    return beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * linear_beta * torch.tanh(up / linear_beta)


def _required(value: float | None, name: str) -> float:
    if value is None:
        raise ValueError(f"the activation needs {name}, and the model declares none")
    return value
