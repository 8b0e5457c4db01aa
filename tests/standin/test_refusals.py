"""Whatever AITER's kernels would misread is refused, each mistake by its own words; the same call without it runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from moeshapes.problem import Problem
from standin.aiter_of_test import TOKENS, drawn, fused_moe, problem, serving
from standin.prepared import Arguments, arguments_of, stacked

Mistake = Callable[[Arguments], Arguments]


def shuffle() -> Any:
    return import_module("aiter.ops.shuffle")


def set_to(**changes: Any) -> Mistake:
    return lambda arguments: changes


def cast(name: str, dtype: torch.dtype) -> Mistake:
    return lambda arguments: {name: arguments[name].to(dtype)}


def flag_lost(name: str) -> Mistake:
    return lambda arguments: {name: arguments[name].view(arguments[name].shape)}


def copied(name: str) -> Mistake:
    def copy(arguments: Arguments) -> Arguments:
        tensor = arguments[name].clone()
        tensor.is_shuffled = True
        return {name: tensor}

    return copy


def strided(name: str) -> Mistake:
    """The same values, every other element of a tensor twice as long."""

    def spread(arguments: Arguments) -> Arguments:
        tensor = arguments[name]
        return {name: torch.stack((tensor, tensor), dim=-1)[..., 0]}

    return spread


def reshuffled(name: str, interleaved: bool) -> Mistake:
    """Shuffled for the other gate mode."""

    def again(arguments: Arguments) -> Arguments:
        plain = import_module("aiter.standin.layout").weight_back(arguments[name].view(torch.uint8), not interleaved)
        return {name: shuffle().shuffle_weight_a16w4(plain.view(arguments[name].dtype), 16, interleaved)}

    return again


def rescaled(name: str, interleaved: bool) -> Mistake:
    """Scales shuffled for the other gate mode."""

    def again(arguments: Arguments) -> Arguments:
        scale, experts = arguments[name].view(torch.uint8), arguments["w1"].shape[0]
        by_expert = scale.view(experts, -1, scale.shape[1])
        plain = import_module("aiter.standin.layout").scale_back(by_expert, not interleaved)
        return {name: shuffle().shuffle_scale_a16w4(plain.view(scale.shape), experts, interleaved)}

    return again


def unpacked_otherwise(arguments: Arguments) -> Arguments:
    """int4 pairs of neighbours, as fp4 has them, rather than AITER's fours."""
    weight = arguments["w1"]
    values = import_module("aiter.standin.layout").int4_unpack(weight.view(torch.int8)).view(torch.uint8) & 0xF
    return {"w1": (values[0::2] | values[1::2] << 4).view(weight.shape).view(weight.dtype)}


def other_fp8(arguments: Arguments) -> Arguments:
    mine = arguments["w1"].dtype
    other = torch.float8_e4m3fn if mine is torch.float8_e4m3fnuz else torch.float8_e4m3fnuz
    changed = {}
    for name in ("w1", "w2"):
        changed[name] = arguments[name].view(other)
        changed[name].is_shuffled = True
    return changed


PLAIN = "fp8_token"
MISTAKES: dict[str, tuple[str, Mistake, str]] = {
    "is_shuffled lost on w1": (PLAIN, flag_lost("w1"), "w1 lacks `is_shuffled`"),
    "is_shuffled lost on w2": (PLAIN, flag_lost("w2"), "w2 lacks `is_shuffled`"),
    "w1 copied after its shuffle": (PLAIN, copied("w1"), "w1 is no shuffled weight"),
    "w1 separated": ("a8w4", reshuffled("w1", False), "w1 is a shuffled weight, and .* gate and up interleaved"),
    "w1 interleaved": ("a4w4", reshuffled("w1", True), "w1 is a .*interleaved, and"),
    "scales separated": ("a8w4", rescaled("w1_scale", False), "w1_scale is a shuffled scale, and"),
    "scales of w2 interleaved": ("a8w4", rescaled("w2_scale", True), "w2_scale is a .*interleaved"),
    "scales not shuffled": ("a4w4", copied("w1_scale"), "w1_scale is no shuffled scale"),
    "gate_mode not passed": ("mxfp8", set_to(gate_mode="separated"), "gate_mode is separated"),
    "gate_mode of a8w4 not passed": ("a8w4", set_to(gate_mode="separated"), "w1 is a .*interleaved, and"),
    "gate_mode of a block recipe": ("fp8_block", set_to(gate_mode="interleave"), "gate_mode is interleave"),
    "gate_mode unset": (PLAIN, set_to(gate_mode=None), "gate_mode is None"),
    "fp8 of the other architecture": (PLAIN, other_fp8, "weights are torch.float8_e4m3fnuz"),
    "int4 packed by neighbours": ("a16wi4", unpacked_otherwise, "w1 is no shuffled int4 weight"),
    "int4 scales by row": ("a16wi4", copied("w1_scale"), "w1_scale is no shuffled int4 scale"),
    "int4 scales of two dims": ("a16wi4", lambda a: {"w1_scale": a["w1_scale"].view(5, -1)}, "w1_scale has shape"),
    "ids of 64 bits": (PLAIN, cast("topk_ids", torch.int64), "topk_ids is torch.int64"),
    "weights of bf16": (PLAIN, cast("topk_weight", torch.bfloat16), "topk_weight is torch.bfloat16"),
    "ids not contiguous": (PLAIN, strided("topk_ids"), "topk_ids is not contiguous"),
    "an id out of range": (PLAIN, lambda a: {"topk_ids": a["topk_ids"] + 1}, "topk_ids leaves 0 to 4"),
    "activations of fp32": (PLAIN, cast("hidden_states", torch.float32), "hidden_states is torch.float32"),
    "activations not contiguous": (PLAIN, strided("hidden_states"), "hidden_states is not contiguous"),
    "scales missing": (PLAIN, set_to(w2_scale=None), "w2_scale is missing"),
    "scales of bf16": (PLAIN, cast("w1_scale", torch.bfloat16), "w1_scale is torch.bfloat16"),
    "scales of one dim": (PLAIN, lambda a: {"w1_scale": a["w1_scale"].view(5, -1)}, "w1_scale has shape"),
    "one scale a tensor": ("int8", lambda a: {"w1_scale": a["w1_scale"][:1]}, "w1_scale has shape"),
    "scales of mx blocks in fp32": ("a8w4", lambda a: {"w1_scale": a["w1_scale"].float()}, "no e8m0 bytes"),
    "scales cut": ("a8w4", lambda a: {"w2_scale": a["w2_scale"][:-32]}, "w2_scale has .* bytes, not"),
    "scales that no recipe has": ("bf16", lambda a: {"w1_scale": torch.ones(5, 1)}, "w1_scale is given"),
    "a name for an enum": (PLAIN, set_to(quant_type="per_Token"), "no QuantType"),
    "another activation's number": (PLAIN, set_to(activation=0), "no ActivationType"),
    "pads of floats": (PLAIN, set_to(hidden_pad=64.0), "hidden_pad is 64.0, no int"),
    "pads that hold values": (PLAIN, set_to(hidden_pad=64), "w1's last 64 columns are passed as padding"),
    "inner pads that hold values": ("a4w4", set_to(intermediate_pad=32), "gate rows of w1 are passed as padding"),
    "blocks of another size": (PLAIN, set_to(block_size_M=256), "block_size_M 256"),
    "a static scale": (PLAIN, lambda a: {"a1_scale": torch.ones(1)}, "does not model a1_scale"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(tmp_path: Path, mistake: str) -> None:
    recipe, change, words = MISTAKES[mistake]
    layer, call = drawn(problem(recipe))
    with serving(tmp_path) as aiter:
        arguments = arguments_of(layer, call)
        fused_moe(**arguments)
        with pytest.raises(aiter.standin.StandinRefused, match=words):
            fused_moe(**(arguments | change(arguments)))


def test_fp8_of_gfx950_on_gfx942(tmp_path: Path) -> None:
    layer, call = drawn(problem(PLAIN))
    with serving(tmp_path, gfx="gfx942") as aiter:
        arguments = arguments_of(layer, call)
        with pytest.raises(aiter.standin.StandinRefused, match=r"weights are torch\.float8_e4m3fn; for"):
            fused_moe(**arguments)


@pytest.mark.parametrize("name", ["bias1", "bias2"])
def test_biases_are_fp32(tmp_path: Path, name: str) -> None:
    layer, call = drawn(problem("a8w4", bias=True))
    with serving(tmp_path) as aiter:
        arguments = arguments_of(layer, call)
        with pytest.raises(aiter.standin.StandinRefused, match=f"{name} is torch.bfloat16"):
            fused_moe(**(arguments | {name: arguments[name].bfloat16()}))


def test_pads_of_the_wrong_half(tmp_path: Path) -> None:
    """All of the padding at the end of w1, rather than at the end of gate and at the end of up."""
    what: Problem = problem("fp8_token", intermediate_pad=32, pads_as_arguments=True)
    layer, call = drawn(what)
    with serving(tmp_path) as aiter:
        arguments = arguments_of(layer, call)
        fused_moe(**arguments)
        codes = stacked(layer, layer.w1)[0].view(torch.uint8)
        live = what.logical_inter_dim
        moved = torch.cat((codes[:, :live], codes[:, what.inter_dim :], codes[:, live : what.inter_dim]), dim=1)
        wrong = shuffle().shuffle_weight(moved.view(torch.float8_e4m3fn), (16, 16))
        with pytest.raises(aiter.standin.StandinRefused, match="gate rows of w1 are passed as padding"):
            fused_moe(**(arguments | {"w1": wrong}))


def test_the_variable_that_makes_aiter_ask_for_fp8(tmp_path: Path) -> None:
    layer, call = drawn(problem("a8w4"))
    with serving(tmp_path, env={"AITER_BF16_FP8_MOE_BOUND": "256"}) as aiter:
        arguments = arguments_of(layer, call)
        with pytest.raises(aiter.standin.StandinRefused, match="AITER_BF16_FP8_MOE_BOUND"):
            fused_moe(**arguments)


MASKS: dict[str, tuple[Arguments, str]] = {
    "of booleans": ({"expert_mask": torch.ones(6).bool()}, "expert_mask is torch.bool"),
    "of too few experts": (
        {"expert_mask": torch.tensor([1, 1, 1, 1, 0, 0], dtype=torch.int32)},
        "names 4 local experts",
    ),
    "without a fake expert": ({"expert_mask": torch.tensor([0, 1, 1, 1, 1, 1], dtype=torch.int32)}, "must be masked"),
    "without a fake slot": ({"expert_mask": torch.tensor([1, 1, 1, 1, 1, 0], dtype=torch.int32)}, "is a fake one"),
}


@pytest.mark.parametrize("mask", MASKS)
def test_expert_masks(tmp_path: Path, mask: str) -> None:
    changes, words = MASKS[mask]
    layer, call = drawn(problem("fp8_token"))
    with serving(tmp_path) as aiter:
        arguments = arguments_of(layer, call)
        with pytest.raises(aiter.standin.StandinRefused, match=words):
            fused_moe(**(arguments | changes))


def test_copies_are_believed_where_that_is_asked_for(tmp_path: Path) -> None:
    layer, call = drawn(problem("a8w4"))
    with serving(tmp_path, lenient=True):
        arguments = arguments_of(layer, call)
        plain = fused_moe(**arguments)
        for name in ("w1", "w2", "w1_scale", "w2_scale"):
            arguments |= copied(name)(arguments)
        assert torch.equal(fused_moe(**arguments), plain)


def test_what_the_stand_in_does_not_have(tmp_path: Path) -> None:
    layer, call = drawn(problem("fp8_token"))
    with serving(tmp_path):
        arguments = arguments_of(layer, call)
        with pytest.raises(NotImplementedError, match="shared-expert"):
            fused_moe(**(arguments | {"shared_expert_id": 4}))
    mx, its_call = drawn(problem("a4w4"))
    assert its_call.tokens == TOKENS
    with serving(tmp_path, env={"AITER_FLYDSL_STAGE2_FP8": "1"}) as aiter:
        arguments = arguments_of(mx, its_call)
        with pytest.raises(aiter.standin.StandinRefused, match="AITER_FLYDSL_STAGE2_FP8"):
            fused_moe(**arguments)
