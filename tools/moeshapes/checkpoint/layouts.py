"""Where families of checkpoints keep a MoE layer, and which one a checkpoint is of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moeshapes.checkpoint.fault import NO_SUCH_LAYER, CheckpointError
from moeshapes.checkpoint.index import Index
from moeshapes.findings import Finding


@dataclass(frozen=True)
class Layout:
    """Names of tensors below the layer's own; empty for what the family has not.

    `experts` and `shared` name a projection: gate, up or down, by the names of `projections` and
    `shared_projections`. Without `{expert}`, all experts share a tensor, in which gate and up stand one after the other
    or, where `interleaved`, row by row in turn. `router_bias` is added to logits, `correction` to scores for the choice
    alone; `table` maps token ids to experts in layers that do not look at activations; `shared_gate` scales the shared
    expert; `latent` maps activations to the width that experts read. `biases` are the experts'.
    """

    family: str
    norm: str
    router: str
    experts: str
    projections: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    interleaved: bool = False
    biases: tuple[str, str] = ("", "")
    router_bias: str = ""
    correction: str = ""
    table: str = ""
    shared: tuple[str, ...] = ()
    shared_projections: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    shared_gate: str = ""
    latent: str = ""

    @property
    def stacked(self) -> bool:
        """Whether all experts share a tensor."""
        return "{expert}" not in self.experts

    def expert(self, number: int, projection: int) -> str:
        return self.experts.format(expert=number, projection=self.projections[projection])


GATE, UP, DOWN = range(3)
_W = ("w1", "w3", "w2")
_FUSED = ("gate_up_proj", "gate_up_proj", "down_proj")

LAYOUTS = (
    # transformers' deepseek_v3, glm4_moe, qwen3_moe and qwen3_next; vLLM's deepseek_v2.py, glm4_moe.py and
    # qwen3_next.py. Kimi-K2 is DeepSeek's. `weight_packed` is compressed-tensors'.
    Layout(
        "DeepSeek-V3",
        norm="post_attention_layernorm.weight",
        router="mlp.gate.weight",
        experts="mlp.experts.{expert}.{projection}",
        correction="mlp.gate.e_score_correction_bias",
        shared=("mlp.shared_experts.{projection}", "mlp.shared_expert.{projection}"),
        shared_gate="mlp.shared_expert_gate.weight",
    ),
    # DeepSeek's own inference/model.py, whose names vLLM's deepseek_v4.py maps.
    Layout(
        "DeepSeek-V4",
        norm="ffn_norm.weight",
        router="ffn.gate.weight",
        experts="ffn.experts.{expert}.{projection}",
        projections=_W,
        correction="ffn.gate.bias",
        table="ffn.gate.tid2eid",
        shared=("ffn.shared_experts.{projection}",),
        shared_projections=_W,
    ),
    # transformers' gpt_oss; vLLM's gpt_oss.py.
    Layout(
        "gpt-oss",
        norm="post_attention_layernorm.weight",
        router="mlp.router.weight",
        experts="mlp.experts.{projection}",
        projections=_FUSED,
        interleaved=True,
        biases=("mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"),
        router_bias="mlp.router.bias",
    ),
    # transformers' qwen3_5_moe: bf16, all experts in a tensor.
    Layout(
        "Qwen3.5",
        norm="post_attention_layernorm.weight",
        router="mlp.gate.weight",
        experts="mlp.experts.{projection}",
        projections=_FUSED,
        shared=("mlp.shared_expert.{projection}",),
        shared_gate="mlp.shared_expert_gate.weight",
    ),
    # Kimi-K3's own modeling_kimi.py, whose names vLLM's kimi_linear.py maps.
    Layout(
        "Kimi-K3",
        norm="post_attention_layernorm.weight",
        router="block_sparse_moe.gate.weight",
        experts="block_sparse_moe.experts.{expert}.{projection}",
        projections=_W,
        correction="block_sparse_moe.gate.e_score_correction_bias",
        shared=("block_sparse_moe.shared_experts.{projection}",),
        latent="block_sparse_moe.routed_expert_down_proj.weight",
    ),
)

_STORED = (
    (".weight", (".weight_scale_inv", ".weight_scale", ".scale")),
    (".weight_packed", (".weight_scale",)),
    ("_blocks", ("_scales",)),
    ("", ()),
)
"""Endings of codes, and of the scales that may go with them: DeepSeek, compressed-tensors and Quark, gpt-oss, none."""


def stored_names(index: Index, base: str) -> tuple[str, str]:
    """The names of a projection's codes and scales; the first ones of their kind, or empty, where there are none."""
    for ending, scale_endings in _STORED:
        if base + ending in index.shard_of:
            scales = (base + scale for scale in scale_endings if base + scale in index.shard_of)
            return base + ending, next(scales, "")
    return "", ""


def find_layer(index: Index, layer: str) -> tuple[str, Layout]:
    """The full name of a layer and its layout. Raises CheckpointError where no MoE layer, or more than one, is meant.

    `layer` is the name, or the end of it: `layers.3` for `model.layers.3`.
    """
    found = [(prefix, layout) for prefix in sorted(_prefixes(index, layer)) for layout in _layouts_at(index, prefix)]
    if len(found) == 1:
        return found[0]
    if found:
        message = f"`{layer}` is meant by {', '.join(f'`{prefix}`' for prefix, _ in found)}"
        raise CheckpointError([Finding(NO_SUCH_LAYER, index.place, message)])
    there = _moe_layers(index)
    known = f"MoE layers are {there[0]} to {there[-1]}" if there else "no name in it is that of a known MoE layer"
    remedy = f"Name one of them: {there[0]}." if there else ""
    raise CheckpointError([Finding(NO_SUCH_LAYER, index.place, f"there is no MoE layer `{layer}`; {known}", remedy)])


def _prefixes(index: Index, layer: str) -> set[str]:
    """What tensors' names begin with up to the layer's name."""
    inner = f".{layer}."
    ends = ((name, f".{name}".find(inner)) for name in index.shard_of)
    return {name[: at + len(layer)] for name, at in ends if at >= 0}


def _layouts_at(index: Index, prefix: str) -> Iterator[Layout]:
    for layout in LAYOUTS:
        down = f"{prefix}.{layout.expert(0, DOWN)}"
        if f"{prefix}.{layout.router}" in index.shard_of and stored_names(index, down)[0]:
            yield layout


def _moe_layers(index: Index) -> list[str]:
    """The layers that have a router, in the order of their numbers."""
    routers = {layout.router for layout in LAYOUTS}
    names = {name.removesuffix(f".{router}") for name in index.shard_of for router in routers if name.endswith(router)}
    return sorted(names, key=lambda name: [int(part) if part.isdecimal() else 0 for part in name.split(".")])
