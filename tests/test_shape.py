from __future__ import annotations

import pytest

from declared import SHAPE, sound_document
from moeshapes.findings import Finding
from moeshapes.shape import Gpu, LeftOut, Shape, read_shape

ENTRY = "  - {block: target, tokens: [1, 32], shared_experts: separate}\n"


def read(text: str) -> tuple[Shape, list[Finding]]:
    return read_shape("demo/tp4", sound_document(text))


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule.name for finding in findings]


def test_defaults() -> None:
    shape, findings = read(SHAPE)
    assert not findings
    assert not shape.faulty
    assert (shape.deployment, shape.model, shape.tp, shape.ep) == ("demo/tp4", "demo", 4, 1)
    assert (shape.gate_mode, shape.pads, shape.doweight_stage1) == ("separated", ("zeros",), False)
    assert (shape.env, shape.pad, shape.deny) == ({}, {}, ())
    assert shape.gpus == (Gpu("gfx950", 256),)
    (entry,) = shape.entries
    assert (entry.shared_experts_fused, entry.left_out, entry.unreachable, entry.override) == (
        False,
        {},
        frozenset(),
        {},
    )
    assert {token: place.column for token, place in entry.tokens.items()} == {1: 30, 32: 33}


def test_everything_that_can_be_said() -> None:
    shape, findings = read(
        SHAPE.replace(ENTRY, "")
        + """\
  - block: target
    shared_experts: fused
    tokens: [1, 3, 8..32]
    left_out: [{tokens: 2048.., reason: not tuned}]
    unreachable: {tokens: 3, note: upstream has it}
    override: {expert: 41, topk: 10, note: as upstream}
gate_mode: interleave
env: {A: 0, B: text}
pad: {inter_dim: 128}
pads: [zeros, arguments]
ep: 2
doweight_stage1: true
kernels:
  deny: [{match: {stage: 1, out_quant: fp8}, reason: NaN}]
"""
    )
    assert not findings
    (entry,) = shape.entries
    assert list(entry.tokens) == [1, 3, 8, 16, 32]
    assert entry.left_out[2048] == LeftOut("not tuned", shape.document.place("moe", 0, "left_out", 0, "tokens"))
    assert (entry.unreachable, entry.override) == (frozenset({3}), {"expert": 41, "topk": 10})
    assert (shape.env, shape.pads, shape.ep, shape.doweight_stage1) == (
        {"A": "0", "B": "text"},
        ("zeros", "arguments"),
        2,
        True,
    )
    (deny,) = shape.deny
    assert (deny.match, deny.reason, deny.place.line) == ({"stage": 1, "out_quant": "fp8"}, "NaN", 20)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("tokens: [1, 1]", ["bucket-twice"]),
        ("tokens: [1..4, 2]", ["bucket-twice"]),
        ("tokens: 1..4, left_out: [{tokens: 4..8, reason: r}]", ["bucket-twice"]),
        ("tokens: 1, left_out: [{tokens: 4..8, reason: r}, {tokens: 8, reason: r}]", ["bucket-twice"]),
        ("tokens: 40", ["unreachable-bucket"]),
        ("tokens: [40, 65536], unreachable: {tokens: 40, note: n}", ["unreachable-bucket"]),
        ("tokens: 1, left_out: [{tokens: 40, reason: r}]", ["unreachable-bucket"]),
        ("tokens: 1, unreachable: {tokens: 40, note: n}", ["unreachable-bucket"]),
        ("tokens: 8, unreachable: {tokens: 8, note: n}", ["unreachable-bucket"]),
        ("tokens: [8..2]", ["token-range"]),
        ("tokens: 131072", []),
        ("tokens: 0", ["wrong-value"]),
        ("tokens: []", ["wrong-value"]),
        ('tokens: "8"', ["wrong-value"]),
        ("tokens: 1.0", ["wrong-type"]),
        ("tokens: 1, override: {expert: 4}", ["missing-key"]),
    ],
)
def test_tokens(entry: str, expected: list[str]) -> None:
    _, findings = read(SHAPE.replace("tokens: [1, 32]", entry))
    assert rules(findings) == expected


@pytest.mark.parametrize(
    ("match", "faulty"),
    [
        ("{stage: 1, family: moe2_layout, tile_m: 32, gui: true}", False),
        ("{stge: 1}", True),
        ("{stage: true}", True),
        ("{gui: 1}", True),
        ('{xcd: "4"}', True),
        ("{out_quant: fp16}", True),
    ],
)
def test_policies_match_on_what_kernel_names_have(match: str, faulty: bool) -> None:
    _, findings = read(SHAPE + f"kernels: {{deny: [{{match: {match}, reason: r}}]}}\n")
    assert rules(findings) == ["policy-field"] * faulty


@pytest.mark.parametrize(
    ("value", "faulty"), [("0", False), ('"256"', False), ("-1", False), ("none", True), ('""', True)]
)
def test_bounds_are_whole_numbers(value: str, faulty: bool) -> None:
    shape, findings = read(SHAPE + f"env: {{AITER_BF16_FP8_MOE_BOUND: {value}, OTHER: none}}\n")
    assert rules(findings) == ["environment-value"] * faulty
    assert shape.is_sound("env") is not faulty


@pytest.mark.parametrize(
    ("change", "faulty"),
    [
        (("tp: 4", "tp: four"), {"tp"}),
        (("tp: 4", "tpp: 4"), {"tpp", "tp"}),
        (("tp: 4", "tp: 4\ngate_mod: interleave"), {"gate_mod", "gate_mode"}),
        (("tp: 4", "tp: 4\nmodle: demo"), {"modle"}),
        (("[1, 32]", "[1, x]"), {"moe"}),
        (("cu_num: 256", "cu: 256"), {"gpus"}),
    ],
)
def test_what_cannot_be_judged_is_known(change: tuple[str, str], faulty: set[str]) -> None:
    shape, findings = read(SHAPE.replace(*change))
    assert findings
    assert shape.faulty == faulty
