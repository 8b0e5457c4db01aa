"""A layer is found under its name, in each layout, with all that is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import checkpoints
from checkpoints import EXPERTS, HIDDEN, INTER, LATENT, TOPK, Sample
from moeshapes.checkpoint.fault import CheckpointError
from moeshapes.checkpoint.index import INDEX, open_index
from moeshapes.checkpoint.layouts import LAYOUTS
from moeshapes.checkpoint.stored import StoredLayer, stored_layer
from moeshapes.findings import Finding

SAMPLES: dict[str, Callable[[], Sample]] = {
    "DeepSeek-V3": checkpoints.deepseek_v3,
    "DeepSeek-V4": checkpoints.deepseek_v4,
    "gpt-oss": checkpoints.gpt_oss,
    "Qwen3.5": checkpoints.qwen3_5,
    "Kimi-K3": checkpoints.kimi_k3,
}


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., StoredLayer]:
    def layer(sample: Sample, name: str = "") -> StoredLayer:
        return stored_layer(open_index(sample.write(tmp_path / "checkpoint")), name or sample.layer)

    return layer


@pytest.fixture
def faults(tmp_path: Path) -> Callable[..., list[Finding]]:
    def of(sample: Sample, name: str = "") -> list[Finding]:
        with pytest.raises(CheckpointError) as caught:
            stored_layer(open_index(sample.write(tmp_path / "checkpoint")), name or sample.layer)
        return caught.value.findings

    return of


def test_each_layout_has_a_sample() -> None:
    assert set(SAMPLES) == {layout.family for layout in LAYOUTS}


@pytest.mark.parametrize("family", SAMPLES)
def test_each_layout_is_told_from_the_others(family: str, stored: Callable[..., StoredLayer]) -> None:
    layer = stored(SAMPLES[family]())
    assert layer.layout.family == family
    assert (len(layer.experts), layer.hidden, layer.inter) == (EXPERTS, HIDDEN, INTER)
    assert layer.width == (LATENT if family == "Kimi-K3" else HIDDEN)
    assert layer.has_bias == (family == "gpt-oss")
    assert layer.shared_experts == {"gpt-oss": 0, "Kimi-K3": 2}.get(family, 1)
    assert layer.shards == set(layer.index.shard_of.values())


@pytest.mark.parametrize("name", ["layers.3", "model.layers.3"])
def test_the_end_of_a_name_is_enough(name: str, stored: Callable[..., StoredLayer]) -> None:
    assert stored(checkpoints.deepseek_v3(), name).prefix == "model.layers.3"


@pytest.mark.parametrize("name", ["layers.33", "ayers.3", "layers", "model.layers.3.mlp", "", "layers.3."])
def test_another_name_is_not_the_layers(name: str, stored: Callable[..., StoredLayer]) -> None:
    sample = checkpoints.deepseek_v3()
    with pytest.raises(CheckpointError) as caught:
        stored_layer(stored(sample).index, name)
    (finding,) = caught.value.findings
    assert finding.rule.name == "no-such-layer"
    assert finding.message.endswith("MoE layers are model.layers.3 to model.layers.3")


def test_a_name_that_two_layers_end_with_is_refused(faults: Callable[..., list[Finding]]) -> None:
    sample = checkpoints.deepseek_v3()
    again = {name.replace("model.", "draft."): t.clone() for name, t in sample.tensors.items() if ".3." in name}
    (finding,) = faults(sample.changed(tensors={**sample.tensors, **again}), "layers.3")
    assert finding.message == "`layers.3` is meant by `draft.layers.3`, `model.layers.3`"


def test_a_checkpoint_without_moe_layers_is_told(faults: Callable[..., list[Finding]]) -> None:
    sample = checkpoints.qwen3().changed(tensors={"model.layers.0.mlp.gate_proj.weight": torch.zeros(4, 4)})
    (finding,) = faults(sample)
    assert finding.message.endswith("no name in it is that of a known MoE layer")


@pytest.mark.parametrize(
    ("missing", "rule", "part"),
    [
        ("mlp.experts.5.up_proj.weight", "missing-tensor", "`model.layers.3.mlp.experts.5.up_proj`"),
        ("mlp.experts.5.up_proj.weight_scale_inv", "tensor-form", "without scales is in no form that is known"),
        ("mlp.shared_experts.down_proj.weight", "missing-tensor", "`model.layers.3.mlp.shared_experts.down_proj`"),
        ("post_attention_layernorm.weight", "missing-tensor", "`model.layers.3.post_attention_layernorm.weight`"),
    ],
)
def test_a_tensor_that_is_missing_is_named(
    missing: str, rule: str, part: str, faults: Callable[..., list[Finding]]
) -> None:
    (finding,) = faults(checkpoints.deepseek_v3().without(missing))
    assert finding.rule.name == rule
    assert part in finding.message


def test_many_that_are_missing_are_one_finding(faults: Callable[..., list[Finding]]) -> None:
    sample = checkpoints.deepseek_v3()
    for expert in range(2, EXPERTS):
        for projection in checkpoints.PROJECTIONS:
            sample = sample.without(f"mlp.experts.{expert}.{projection}.weight")
    (finding,) = faults(sample)
    assert finding.message.startswith("the index lacks `model.layers.3.mlp.experts.2.gate_proj` and 17 more of ")


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("mlp__experts__5__up_proj__weight", (INTER, HIDDEN + 128), "in no form"),
        ("mlp__experts__5__down_proj__weight", (HIDDEN, INTER - 128), "in no form"),
        ("mlp__gate__weight", (EXPERTS, HIDDEN + 1), "expected [8, 256]: experts are that wide"),
        ("mlp__gate__weight", (EXPERTS * HIDDEN,), "expected a row an expert"),
        ("mlp__gate__weight", (0, HIDDEN), "expected a row an expert"),
        ("mlp__gate__weight", (900_000_000, 0), "expected a row an expert"),
        ("mlp__gate__e_score_correction_bias", (EXPERTS + 1,), "expected floats [8]"),
        ("post_attention_layernorm__weight", (HIDDEN, 1), "expected floats [256]"),
    ],
)
def test_a_tensor_of_another_shape_is_found(
    name: str, shape: tuple[int, ...], expected: str, faults: Callable[..., list[Finding]]
) -> None:
    sample = checkpoints.deepseek_v3()
    tensor = torch.zeros(shape, dtype=sample[name.replace("__", ".")].dtype)
    found = faults(sample.having(**{name: tensor}))
    assert {finding.rule.name for finding in found} == {"tensor-form"}
    assert any(expected in finding.message for finding in found)


@pytest.mark.parametrize("table", [torch.zeros(TOPK), torch.zeros(0, TOPK), torch.zeros(9, 0), torch.zeros(9, TOPK, 1)])
def test_a_table_that_sends_no_token_anywhere_is_found(table: Tensor, faults: Callable[..., list[Finding]]) -> None:
    (finding,) = faults(checkpoints.deepseek_v4(hashed=True).having(ffn__gate__tid2eid=table.long()))
    assert "expected whole numbers, one row a token" in finding.message


def test_experts_of_unlike_widths_are_found(faults: Callable[..., list[Finding]]) -> None:
    sample = checkpoints.qwen3()
    narrow = torch.zeros(INTER // 2, HIDDEN).bfloat16()
    (finding,) = faults(sample.having(mlp__experts__3__gate_proj__weight=narrow))
    assert finding.message.endswith("gate_proj.weight`: BF16 [256, 256], expected 512 x 256 elements")


def test_more_experts_in_a_tensor_than_the_router_has_are_found(faults: Callable[..., list[Finding]]) -> None:
    sample = checkpoints.qwen3_5()
    more = torch.zeros(EXPERTS + 1, HIDDEN, INTER).bfloat16()
    (finding,) = faults(sample.having(mlp__experts__down_proj=more))
    assert finding.message.endswith("expected 8 experts")


@pytest.mark.parametrize(
    ("ending", "tensor"),
    [
        ("weight", torch.zeros(INTER, HIDDEN, dtype=torch.float8_e5m2)),
        ("weight", torch.zeros(INTER, HIDDEN, 1).to(checkpoints.FP8)),
        ("weight_scale_inv", torch.zeros(INTER, HIDDEN // 16)),
        ("weight_scale_inv", torch.zeros(INTER // 128, HIDDEN // 128, dtype=torch.int32)),
    ],
    ids=["e5m2", "three axes", "blocks of 16", "whole numbers"],
)
def test_a_form_that_is_not_known_is_refused(
    ending: str, tensor: torch.Tensor, faults: Callable[..., list[Finding]]
) -> None:
    sample = checkpoints.deepseek_v3().having(**{f"mlp__experts__5__up_proj__{ending}": tensor})
    (finding,) = faults(sample)
    assert finding.rule.name == "tensor-form"
    assert "`model.layers.3.mlp.experts.5.up_proj.weight`: " in finding.message


@pytest.mark.parametrize("family", ["DeepSeek-V3", "gpt-oss"])
def test_matrices_without_weights_are_refused(family: str, faults: Callable[..., list[Finding]]) -> None:
    sample = SAMPLES[family]()
    emptied = {
        name: tensor[..., :0] if "down_proj" in name else tensor[..., :0, :]
        for name, tensor in sample.tensors.items()
        if "experts" in name and tensor.dim() > 1
    }
    found = faults(sample.changed(tensors={**sample.tensors, **emptied}))
    assert {finding.rule.name for finding in found} == {"tensor-form"}
    assert all(finding.message.endswith(" holds no weights") for finding in found)


@pytest.mark.parametrize(
    ("name", "scales", "shape"),
    [
        ("gate_up_proj_scales", torch.zeros(EXPERTS // 2, 2 * INTER, HIDDEN // 32, dtype=torch.uint8), "[4, 1024, 8]"),
        ("down_proj_scales", torch.zeros(EXPERTS + 1, HIDDEN, INTER // 32, dtype=torch.uint8), "[9, 256, 16]"),
        ("down_proj_scales", torch.tensor(1.0), "[]"),
    ],
)
def test_scales_that_are_not_one_experts_each_are_refused(
    name: str, scales: torch.Tensor, shape: str, faults: Callable[..., list[Finding]]
) -> None:
    (finding,) = faults(checkpoints.gpt_oss().having(**{f"mlp__experts__{name}": scales}))
    assert finding.rule.name == "tensor-form"
    assert finding.message.endswith(f"{shape} has not the scales of each expert")


def test_one_scale_for_all_experts_is_refused(faults: Callable[..., list[Finding]]) -> None:
    sample = checkpoints.qwen3_5().without("mlp.experts.down_proj")
    codes = torch.zeros(EXPERTS, HIDDEN, INTER).to(checkpoints.FP8)
    quantised = {"mlp__experts__down_proj__weight": codes, "mlp__experts__down_proj__weight_scale": torch.tensor(0.5)}
    (finding,) = faults(sample.having(**quantised))
    assert finding.message.endswith("F8_E4M3 [8, 256, 512] with scales F32 [] has not the scales of each expert")


def test_a_quantised_router_is_refused(faults: Callable[..., list[Finding]]) -> None:
    sample = checkpoints.deepseek_v3()
    (finding,) = faults(sample.having(mlp__gate__weight=sample["mlp.gate.weight"].to(checkpoints.FP8)))
    assert finding.message.endswith("`model.layers.3.mlp.gate.weight`: F8_E4M3 [8, 256], expected floats [8, 256]")


def test_a_latent_layer_without_its_projection_is_found(faults: Callable[..., list[Finding]]) -> None:
    sample = checkpoints.kimi_k3().without("block_sparse_moe.routed_expert_down_proj.weight")
    assert "expected [8, 128]: experts are that wide" in faults(sample)[0].message


def test_a_shared_expert_of_a_fractional_width_counts_none(stored: Callable[..., StoredLayer]) -> None:
    sample = checkpoints.qwen3_5()
    wide = INTER + 128
    tensors = {
        f"mlp__shared_expert__{name}__weight": torch.zeros(wide, HIDDEN).bfloat16() for name in ("gate_proj", "up_proj")
    }
    layer = stored(sample.having(**tensors, mlp__shared_expert__down_proj__weight=torch.zeros(HIDDEN, wide).bfloat16()))
    assert (layer.shared_experts, layer.shared_inter) == (0, wide)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    sample = checkpoints.deepseek_v3().without("mlp.experts.1.up_proj.weight").changed(config={})
    bad = torch.zeros(INTER, HIDDEN, dtype=torch.float8_e5m2)
    folder = sample.having(mlp__experts__5__up_proj__weight=bad).write(tmp_path, shards=3)
    content = json.loads((folder / INDEX).read_text())
    shards = content["weight_map"]
    (folder / next(shard for shard in shards.values() if shard != shards["model.layers.3.mlp.gate.weight"])).unlink()
    with pytest.raises(CheckpointError) as caught:
        stored_layer(open_index(folder), "layers.3")
    rules = {finding.rule.name for finding in caught.value.findings}
    assert rules >= {"missing-tensor", "unreadable-checkpoint", "router-fact"}
    assert str(caught.value).count("; ") >= 2
