"""How a checkpoint's router scores and chooses, from its config.json and from what its model's code fixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moeshapes.checkpoint.fault import ROUTER_FACT
from moeshapes.checkpoint.index import CONFIG, Index
from moeshapes.findings import Finding, Place
from moeshapes.hf_config import NESTED

SCORINGS = ("softmax", "sigmoid", "sqrtsoftplus")
_SCORING = ("scoring_func", "moe_router_activation_func")
_RENORMALISE = ("norm_topk_prob", "moe_renormalize")
_SCALING = ("routed_scaling_factor",)
_GROUPS, _GROUPS_KEPT = ("n_group", "num_expert_group"), ("topk_group",)

_FIXED: Mapping[str, Mapping[str, Any]] = {
    "gpt_oss": {"scoring_func": "softmax", "norm_topk_prob": True},
    "glm4_moe": {"scoring_func": "sigmoid"},
    "qwen3_moe": {"scoring_func": "softmax"},
    "qwen3_next": {"scoring_func": "softmax"},
    "qwen3_5_moe": {"scoring_func": "softmax", "norm_topk_prob": True},
    "qwen3_5_moe_text": {"scoring_func": "softmax", "norm_topk_prob": True},
}
"""What transformers' code of a model type fixes and its config need not say. gpt-oss takes the softmax of the top-k,
which is that of all, renormalised."""
_LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127
_ZERO_CENTRED = frozenset({"qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text"})
"""Model types whose RMSNorm multiplies by 1 + weight."""


@dataclass(frozen=True)
class Routing:
    """`scoring` makes scores of logits. Of `groups` equal groups of experts, `groups_kept` stay in the choice.

    Weights are the chosen ones' scores, divided by their sum where `renormalise`, times `scaling`.
    """

    scoring: str
    renormalise: bool
    scaling: float = 1.0
    groups: int = 1
    groups_kept: int = 1
    zero_centred_norm: bool = False


def routing_of(index: Index, experts: int) -> tuple[Routing | None, list[Finding]]:
    """The routing of a model with so many experts, None where its config does not tell, and what is wrong with it."""
    reader = _Reader(index)
    scoring = reader.scoring()
    renormalise = reader.value(_RENORMALISE, bool, None)
    scaling = reader.value(_SCALING, (int, float), 1.0)
    groups, kept = (reader.value(names, int, 1) for names in (_GROUPS, _GROUPS_KEPT))
    if not 0 < scaling <= _LARGEST_FLOAT32:
        reader.report(f"`{_SCALING[0]}` is `{str(scaling)[:40]}`: no weight can be scaled by it")
    if not reader.findings and (groups < 1 or experts % groups or not 1 <= kept <= groups):
        reader.report(
            f"{str(kept)[:40]} of {str(groups)[:40]} groups of {experts} experts are no choice of equal groups"
        )
    if reader.findings:
        return None, reader.findings
    zero_centred = bool(_ZERO_CENTRED & set(reader.model_types))
    return Routing(scoring, renormalise, float(scaling), groups, kept, zero_centred), []


class _Reader:
    """Facts from a config, from the text model nested in it, and from what is fixed, in this order."""

    def __init__(self, index: Index) -> None:
        config = index.config
        stated = [config, *(nested for key in NESTED if isinstance(nested := config.get(key), dict))]
        self.model_types = [str(source.get("model_type")) for source in stated]
        self.sources = [*stated, *(_FIXED[name] for name in self.model_types if name in _FIXED)]
        self.place = Place(str(index.folder / CONFIG))
        self.findings: list[Finding] = []

    def report(self, message: str) -> None:
        self.findings.append(Finding(ROUTER_FACT, self.place, message))

    def value(self, names: tuple[str, ...], kind: type | tuple[type, ...], default: Any) -> Any:
        """The first value stated under any of the names; a finding where it is of another kind, or none is stated."""
        for source in self.sources:
            for name in names:
                found = source.get(name)
                if found is None:
                    continue
                if isinstance(found, kind) and (kind is bool or not isinstance(found, bool)):
                    return found
                self.report(f"`{name}` is `{str(found)[:40]}`")
                return default
        if default is None:
            self.report(f"none of {', '.join(f'`{name}`' for name in names)} is stated")
        return default

    def scoring(self) -> str:
        found = self.value(_SCORING, str, None)
        if found is not None and found not in SCORINGS:
            self.report(f"the router scores by `{str(found)[:40]}`, which is none of {', '.join(SCORINGS)}")
        return str(found)
