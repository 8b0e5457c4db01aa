"""Small checkpoints of each layout, as their makers' tools write them: names, types and shapes are real, values random.

A routed expert is INTER wide, there are EXPERTS of them, and the layer's tensors begin with LAYER.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

HIDDEN, INTER, EXPERTS, TOPK = 256, 512, 8, 3
LATENT = 128
VOCABULARY = 32
E8M0 = torch.float8_e8m0fnu
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Sample:
    """A checkpoint's tensors by their names, its config, and the name of its one MoE layer."""

    tensors: Mapping[str, Tensor]
    config: Mapping[str, Any]
    layer: str

    def __getitem__(self, name: str) -> Tensor:
        """A tensor by its name below the layer's."""
        return self.tensors[f"{self.layer}.{name}"]

    def changed(self, **changes: Any) -> Sample:
        return replace(self, **changes)

    def without(self, name: str) -> Sample:
        return replace(self, tensors={key: t for key, t in self.tensors.items() if key != f"{self.layer}.{name}"})

    def having(self, **tensors: Tensor) -> Sample:
        """With tensors of the layer added or in the place of others; `__` stands for a dot in names."""
        named = {f"{self.layer}.{name.replace('__', '.')}": tensor for name, tensor in tensors.items()}
        return replace(self, tensors={**self.tensors, **named})

    def write(self, folder: Path, shards: int = 2) -> Path:
        """Writes config, index and shards, neighbouring tensors to different shards; the tensor of no layer as well."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        files: dict[str, dict[str, Tensor]] = {}
        for number, (name, tensor) in enumerate(self.tensors.items()):
            files.setdefault(f"model-{number % shards + 1:05}-of-{shards:05}.safetensors", {})[name] = tensor
        for file, tensors in files.items():
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / file)
        weight_map = {name: file for file, tensors in files.items() for name in tensors}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
        return folder


class Draw:
    """Random tensors, the same for a seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def floats(self, *shape: int, scale: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=self.generator) * scale

    def bf16(self, *shape: int, scale: float = 0.05) -> Tensor:
        return self.floats(*shape, scale=scale).bfloat16()

    def codes(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=self.generator, dtype=torch.int64)

    def fp8(self, *shape: int) -> Tensor:
        return self.floats(*shape, scale=60.0).to(FP8)

    def fp4(self, *shape: int) -> Tensor:
        """Two codes a byte: the last dim counts bytes."""
        return self.codes(0, 256, *shape).to(torch.uint8)

    def e8m0(self, *shape: int) -> Tensor:
        return self.codes(117, 122, *shape).to(torch.uint8)

    def scales(self, *shape: int) -> Tensor:
        return (torch.rand(shape, generator=self.generator) + 0.5) / 4000


Matrix = Callable[[Draw, int, int], dict[str, Tensor]]
"""A weight matrix of so many rows and elements along K, by the endings of its tensors' names."""


def fp8_block(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    """DeepSeek-V3: fp8 under one fp32 scale a block of 128x128."""
    return {".weight": draw.fp8(rows, k), ".weight_scale_inv": draw.scales(-(-rows // 128), -(-k // 128))}


def fp8_block_e8m0(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    """DeepSeek-V4's shared expert."""
    return {".weight": draw.fp8(rows, k), ".scale": draw.e8m0(-(-rows // 128), -(-k // 128)).view(E8M0)}


def fp8_channel(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    """compressed-tensors' float-quantized, one scale an output channel."""
    return {".weight": draw.fp8(rows, k), ".weight_scale": draw.scales(rows, 1).bfloat16()}


def fp8_tensor(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    """One scale a tensor, the same for all: as quantisers that know of fused gates write it."""
    return {".weight": draw.fp8(rows, k), ".weight_scale": torch.tensor(0.00025)}


def mxfp8(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    return {".weight": draw.fp8(rows, k), ".weight_scale_inv": draw.e8m0(rows, k // 32)}


def mxfp4(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    """Quark's: two codes a byte, e8m0 bytes."""
    return {".weight": draw.fp4(rows, k // 2), ".weight_scale": draw.e8m0(rows, k // 32)}


def mxfp4_v4(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    """DeepSeek-V4's experts: an int8 container."""
    return {".weight": draw.fp4(rows, k // 2).view(torch.int8), ".scale": draw.e8m0(rows, k // 32).view(E8M0)}


def mxfp4_packed(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    """compressed-tensors' mxfp4-pack-quantized."""
    return {".weight_packed": draw.fp4(rows, k // 2), ".weight_scale": draw.e8m0(rows, k // 32)}


def int4_packed(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    """compressed-tensors' pack-quantized: eight codes an int32, the first lowest, 8 added to each."""
    packed = draw.codes(-(2**31), 2**31, rows, k // 8).to(torch.int32)
    shape = torch.tensor([rows, k])
    return {".weight_packed": packed, ".weight_scale": draw.bf16(rows, k // 32).abs(), ".weight_shape": shape}


def int8_channel(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    return {".weight": draw.codes(-127, 128, rows, k).to(torch.int8), ".weight_scale": draw.scales(rows, 1)}


def plain(draw: Draw, rows: int, k: int) -> dict[str, Tensor]:
    return {".weight": draw.bf16(rows, k)}


def _mlp(
    draw: Draw, base: str, matrix: Matrix, inter: int, hidden: int, names: tuple[str, str, str]
) -> dict[str, Tensor]:
    gate, up, down = names
    of = {gate: (inter, hidden), up: (inter, hidden), down: (hidden, inter)}
    return {f"{base}.{name}{ending}": t for name, dims in of.items() for ending, t in matrix(draw, *dims).items()}


PROJECTIONS, W = ("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")


def _experts(
    draw: Draw, base: str, matrix: Matrix, names: tuple[str, str, str] = PROJECTIONS, hidden: int = HIDDEN
) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for expert in range(EXPERTS):
        found |= _mlp(draw, f"{base}.experts.{expert}", matrix, INTER, hidden, names)
    return found


def _sample(layer: str, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> Sample:
    elsewhere = {"model.embed_tokens.weight": torch.zeros(4, 4)}
    return Sample({**elsewhere, **{f"{layer}.{name}": tensor for name, tensor in tensors.items()}}, config, layer)


def _before(draw: Draw, router: str, norm: str = "post_attention_layernorm.weight") -> dict[str, Tensor]:
    return {norm: (1 + draw.floats(HIDDEN, scale=0.3)).bfloat16(), router: draw.bf16(EXPERTS, HIDDEN)}


DEEPSEEK = {
    "model_type": "deepseek_v3",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "n_group": 4,
    "topk_group": 2,
}


def deepseek_v3(matrix: Matrix = fp8_block, shared: Matrix | None = None, seed: int = 1) -> Sample:
    draw, layer = Draw(seed), "model.layers.3"
    tensors = {
        **_before(draw, "mlp.gate.weight"),
        "mlp.gate.e_score_correction_bias": draw.floats(EXPERTS, scale=0.2),
        **_experts(draw, "mlp", matrix),
        **_mlp(draw, "mlp.shared_experts", shared or matrix, INTER, HIDDEN, PROJECTIONS),
    }
    return _sample(layer, tensors, DEEPSEEK)


def deepseek_v4(hashed: bool = False, seed: int = 2) -> Sample:
    """MXFP4 experts and an fp8 shared one; a `hashed` layer sends tokens to experts by a table."""
    draw, layer = Draw(seed), "layers.3"
    table = torch.stack([torch.randperm(EXPERTS, generator=draw.generator)[:TOPK] for _ in range(VOCABULARY)])
    chooser = {"ffn.gate.tid2eid": table} if hashed else {"ffn.gate.bias": draw.floats(EXPERTS, scale=0.2)}
    tensors = {
        **_before(draw, "ffn.gate.weight", "ffn_norm.weight"),
        **chooser,
        **_experts(draw, "ffn", mxfp4_v4, W),
        **_mlp(draw, "ffn.shared_experts", fp8_block_e8m0, INTER, HIDDEN, W),
    }
    config = {"scoring_func": "sqrtsoftplus", "norm_topk_prob": True, "routed_scaling_factor": 1.5}
    return _sample(layer, tensors, config)


def glm(matrix: Matrix = fp8_channel, seed: int = 3) -> Sample:
    """As DeepSeek-V3, but for a config that leaves the scoring to the code."""
    config = {"model_type": "glm4_moe", "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1}
    return deepseek_v3(matrix, seed=seed).changed(config=config)


QWEN3 = {"model_type": "qwen3_moe", "norm_topk_prob": True}


def qwen3(matrix: Matrix = plain, seed: int = 4) -> Sample:
    draw, layer = Draw(seed), "model.layers.0"
    return _sample(layer, {**_before(draw, "mlp.gate.weight"), **_experts(draw, "mlp", matrix)}, QWEN3)


def qwen3_5(seed: int = 5) -> Sample:
    """All experts in a tensor, a shared expert with a gate of its own, and a norm around zero; text within a VLM."""
    draw, layer = Draw(seed), "model.language_model.layers.0"
    tensors = {
        **_before(draw, "mlp.gate.weight"),
        "mlp.experts.gate_up_proj": draw.bf16(EXPERTS, 2 * INTER, HIDDEN),
        "mlp.experts.down_proj": draw.bf16(EXPERTS, HIDDEN, INTER),
        **_mlp(draw, "mlp.shared_expert", plain, INTER, HIDDEN, PROJECTIONS),
        "mlp.shared_expert_gate.weight": draw.bf16(1, HIDDEN),
    }
    return _sample(layer, tensors, {"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text"}})


def gpt_oss(seed: int = 6) -> Sample:
    """Gate and up row by row in turn, fp4 blocks on an axis of their own, biases."""
    draw, layer = Draw(seed), "model.layers.7"
    tensors = {
        **_before(draw, "mlp.router.weight"),
        "mlp.router.bias": draw.bf16(EXPERTS, scale=1.0),
        "mlp.experts.gate_up_proj_blocks": draw.fp4(EXPERTS, 2 * INTER, HIDDEN // 32, 16),
        "mlp.experts.gate_up_proj_scales": draw.e8m0(EXPERTS, 2 * INTER, HIDDEN // 32),
        "mlp.experts.gate_up_proj_bias": draw.bf16(EXPERTS, 2 * INTER, scale=1.0),
        "mlp.experts.down_proj_blocks": draw.fp4(EXPERTS, HIDDEN, INTER // 32, 16),
        "mlp.experts.down_proj_scales": draw.e8m0(EXPERTS, HIDDEN, INTER // 32),
        "mlp.experts.down_proj_bias": draw.bf16(EXPERTS, HIDDEN, scale=1.0),
    }
    return _sample(layer, tensors, {"model_type": "gpt_oss"})


def kimi_k2(matrix: Matrix = int4_packed, seed: int = 7) -> Sample:
    """As DeepSeek-V3, packed by compressed-tensors, the shared expert left in bf16."""
    config = {**DEEPSEEK, "model_type": "kimi_k2", "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.827}
    return deepseek_v3(matrix, plain, seed).changed(config=config)


def kimi_k3(seed: int = 8) -> Sample:
    """Experts of a latent width, packed MXFP4; the text model nested."""
    draw, layer = Draw(seed), "language_model.model.layers.1"
    tensors = {
        **_before(draw, "block_sparse_moe.gate.weight"),
        "block_sparse_moe.gate.e_score_correction_bias": draw.floats(EXPERTS, scale=0.2),
        "block_sparse_moe.routed_expert_down_proj.weight": draw.bf16(LATENT, HIDDEN),
        **_experts(draw, "block_sparse_moe", mxfp4_packed, W, LATENT),
        **_mlp(draw, "block_sparse_moe.shared_experts", plain, 2 * INTER, HIDDEN, PROJECTIONS),
    }
    text = {"moe_router_activation_func": "sigmoid", "moe_renormalize": True, "routed_scaling_factor": 1.0}
    return _sample(layer, tensors, {"model_type": "kimi_k3", "text_config": text})
