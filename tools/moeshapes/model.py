"""Models: the MoE architecture of a checkpoint, in the terms of its config.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from moeshapes.document import Document
from moeshapes.findings import Finding
from moeshapes.rule import Rule, Severity
from moeshapes.schema_check import check_schema

TOPK_EXCEEDS_EXPERTS = Rule(
    "MOE020", "topk-exceeds-experts", Severity.ERROR,
    what="A token would go to more experts than there are.",
    why="The two numbers are swapped or one is wrong; no router can do it.",
    fix="Compare num_experts_per_tok and the expert count with the checkpoint's config.json.",
)  # fmt: skip
ACTIVATION_PARAMETER = Rule(
    "MOE021", "activation-parameter", Severity.ERROR,
    what="An activation lacks a parameter that it needs, or has one that it does not take.",
    why="Kernels, references and tuners have different defaults, so a missing one is a wrong result somewhere.",
    fix="Take the parameters from the checkpoint's config.json.",
)  # fmt: skip

_REQUIRED = {
    "silu": (),
    "gelu": (),
    "swiglu": ("swiglu_alpha", "swiglu_limit"),
    "situv2": ("situ_beta", "situ_linear_beta"),
}
_OPTIONAL = {"silu": ("swiglu_limit",), "gelu": ("swiglu_limit",), "swiglu": (), "situv2": ("swiglu_limit",)}
_PARAMETERS = ("swiglu_limit", "swiglu_alpha", "situ_beta", "situ_linear_beta")


@dataclass(frozen=True)
class Block:
    """One kind of MoE layer. Counts and widths (elements) are the whole model's, before any parallelism or padding."""

    hidden_size: int
    moe_intermediate_size: int
    n_routed_experts: int
    num_experts_per_tok: int
    n_shared_experts: int
    activation: str
    routed_expert_hidden_size: int | None = None
    swiglu_limit: float | None = None
    swiglu_alpha: float | None = None
    situ_beta: float | None = None
    situ_linear_beta: float | None = None
    bias: bool = False

    @property
    def expert_hidden_size(self) -> int:
        """Width that the routed experts read and write: the latent width where there is one."""
        return self.routed_expert_hidden_size or self.hidden_size


@dataclass(frozen=True)
class Model:
    """A model by the name that shape files use (its file's name)."""

    id: str
    name: str
    checkpoints: tuple[str, ...]
    source: str
    blocks: Mapping[str, Block]


def read_model(model_id: str, document: Document) -> tuple[Model | None, list[Finding]]:
    """The model that a document describes, or all that is wrong with it."""
    value, findings = check_schema(document, "model")
    blocks = {name: _block(facts) for name, facts in value.get("blocks", {}).items()}
    findings += [finding for name in blocks for finding in _block_findings(document, name, blocks[name])]
    if findings:
        return None, findings
    checkpoint = value["checkpoint"]
    checkpoints = tuple(checkpoint) if isinstance(checkpoint, list) else (checkpoint,)
    return Model(model_id, value["name"], checkpoints, value.get("source", ""), blocks), []


def _block(facts: Mapping[str, Any]) -> Block:
    numbers = {name: float(facts[name]) for name in _PARAMETERS if name in facts}
    return Block(**{**{field.name: facts[field.name] for field in fields(Block) if field.name in facts}, **numbers})


def _block_findings(document: Document, name: str, block: Block) -> Iterator[Finding]:
    if block.num_experts_per_tok > block.n_routed_experts:
        place = document.place("blocks", name, "num_experts_per_tok")
        message = f"{block.num_experts_per_tok} experts a token of {block.n_routed_experts} in block `{name}`"
        yield Finding(TOPK_EXCEEDS_EXPERTS, place, message)
    required, optional = _REQUIRED[block.activation], _OPTIONAL[block.activation]
    for parameter in _PARAMETERS:
        given = getattr(block, parameter) is not None
        if parameter in required and not given:
            place = document.place("blocks", name, "activation")
            yield Finding(ACTIVATION_PARAMETER, place, f"`{block.activation}` of block `{name}` needs `{parameter}`")
        elif given and parameter not in (*required, *optional):
            place = document.key_place("blocks", name, parameter)
            yield Finding(ACTIVATION_PARAMETER, place, f"`{block.activation}` of block `{name}` has no `{parameter}`")
