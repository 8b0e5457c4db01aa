from __future__ import annotations

from pathlib import Path

from declared import SHAPE, declared
from moeshapes.deployment import Deployment, deployments
from moeshapes.recipe import Format

INTERLEAVED = SHAPE.replace("recipe: fp8_token", "recipe: a8w4\ngate_mode: interleave\npad: {inter_dim: 128}")
BOUND = INTERLEAVED.replace("recipe:", "env: {AITER_BF16_FP8_MOE_BOUND: 0}\nrecipe:")


def only(root: Path, text: str) -> Deployment:
    declarations, findings = declared(root, tp4=text)
    assert not findings
    (found,) = deployments(declarations)
    return found


def test_any_token_count_of_a_deployment_can_be_called(tmp_path: Path) -> None:
    found = only(tmp_path, BOUND)
    assert found.name == "demo/tp4#target+zeros 5120/640/384/6 on gfx950/256"
    key = found.call(300).key
    assert (key.shape.token, key.shape.inter_dim, key.shape.topk) == (512, 640, 6)
    assert found.call(300).format.format is Format.FP8


def test_the_environment_of_the_shape_is_added_to(tmp_path: Path) -> None:
    found = only(tmp_path, BOUND)
    assert found.call(8).format.format is Format.FP8
    assert found.call(8, env={"AITER_BF16_FP8_MOE_BOUND": "9"}).format.format is Format.BF16


def test_expert_parallelism_passes_a_mask(tmp_path: Path) -> None:
    shared = SHAPE.replace("tp: 4", "tp: 4\nep: 4")
    call = only(tmp_path, shared).call(8)
    assert call.expert_mask
    assert (call.topk_width, call.topk, call.key.shape.expert) == (7, 6, 96)


def test_every_use_entry_and_gpu_is_there_once(tmp_path: Path) -> None:
    text = BOUND.replace("pad:", "pads: [zeros, arguments]\npad:").replace(
        "{gfx: gfx950, cu_num: 256}", "{gfx: gfx950, cu_num: 256}, {gfx: gfx950, cu_num: 128}"
    )
    declarations, _ = declared(tmp_path, tp4=text + "  - {block: target, shared_experts: fused, tokens: [8]}\n")
    names = [found.name for found in deployments(declarations)]
    assert len(names) == len(set(names)) == 8
    assert {found.gpu.cu_num for found in deployments(declarations)} == {128, 256}
    assert {found.call(8).intermediate_pad for found in deployments(declarations)} == {0, 64}
