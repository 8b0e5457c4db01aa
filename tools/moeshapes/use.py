"""A use: one declared way in which production hits a key, with what the key leaves out yet the result depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Use:
    """Everything that a verifier must know beside the row.

    `activation` is silu, gelu, swiglu or situv2 with its parameters (None where the activation has none):
    `swiglu_limit` clamps gate and up, `swiglu_alpha` scales swiglu's sigmoid, `situ_beta` and `situ_linear_beta` are
    situv2's. `hidden_pad` and `intermediate_pad` are the trailing padded elements of model_dim and inter_dim; the
    logical width is the row's minus the pad. `pads` says how serving passes them: as `arguments` of fused_moe, or as
    `zeros` in the tensors alone. `shared_experts` counts the fused shared experts: always on, the last ones of
    `expert`, the last slots of `topk`. `ep` ranks share the experts: above 1, calls bring an expert mask.
    """

    deployment: str
    block: str
    recipe: str
    activation: str
    gate_mode: str = "separated"
    hidden_pad: int = 0
    intermediate_pad: int = 0
    pads: str = "zeros"
    swiglu_limit: float | None = None
    swiglu_alpha: float | None = None
    situ_beta: float | None = None
    situ_linear_beta: float | None = None
    bias: bool = False
    shared_experts: int = 0
    ep: int = 1
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """`deepseek-v4.1-flash/tp4#target`; `+arguments` marks the convention where the use has pads."""
        padded = self.hidden_pad or self.intermediate_pad
        return f"{self.deployment}#{self.block}" + (f"+{self.pads}" if padded else "")

    def as_json(self) -> dict[str, object]:
        return asdict(self)
