from __future__ import annotations

import pytest

from declared import sound_document
from moeshapes.findings import Finding
from moeshapes.model import Model, read_model

FACTS = {
    "hidden_size": "7168",
    "moe_intermediate_size": "3072",
    "n_routed_experts": "896",
    "num_experts_per_tok": "16",
    "n_shared_experts": "2",
    "activation": "silu",
}


def read(checkpoint: str = "example/demo", /, **facts: str | None) -> tuple[Model | None, list[Finding]]:
    kept = ", ".join(f"{key}: {value}" for key, value in {**FACTS, **facts}.items() if value is not None)
    return read_model("demo", sound_document(f"name: Demo\ncheckpoint: {checkpoint}\nblocks:\n  target: {{{kept}}}\n"))


def test_facts_are_kept_as_written() -> None:
    model, findings = read(swiglu_limit="10", bias="true")
    assert not findings
    assert model
    block = model.blocks["target"]
    assert (model.id, model.name, model.checkpoints, model.source) == ("demo", "Demo", ("example/demo",), "")
    assert (block.hidden_size, block.n_routed_experts, block.num_experts_per_tok) == (7168, 896, 16)
    assert (block.swiglu_limit, block.swiglu_alpha, block.bias) == (10.0, None, True)


def test_checkpoints_may_share_an_architecture() -> None:
    model, _ = read("[a/one, a/two]")
    assert model
    assert model.checkpoints == ("a/one", "a/two")


def test_a_latent_width_is_the_experts_hidden_size() -> None:
    latent, _ = read(routed_expert_hidden_size="3584")
    plain, _ = read()
    assert latent
    assert plain
    assert latent.blocks["target"].expert_hidden_size == 3584
    assert plain.blocks["target"].expert_hidden_size == 7168


@pytest.mark.parametrize(
    ("facts", "rules"),
    [
        ({}, []),
        ({"num_experts_per_tok": "256", "n_routed_experts": "256"}, []),
        ({"num_experts_per_tok": "17", "n_routed_experts": "16"}, ["topk-exceeds-experts"]),
        ({"activation": "gelu", "swiglu_limit": "7"}, []),
        ({"activation": "swiglu", "swiglu_alpha": "1.702", "swiglu_limit": "7"}, []),
        ({"activation": "swiglu"}, ["activation-parameter"] * 2),
        ({"activation": "swiglu", "swiglu_limit": "7"}, ["activation-parameter"]),
        ({"activation": "situv2", "situ_beta": "4", "situ_linear_beta": "25"}, []),
        ({"activation": "situv2", "situ_beta": "4"}, ["activation-parameter"]),
        ({"activation": "silu", "situ_beta": "4"}, ["activation-parameter"]),
        ({"swiglu_limit": "0"}, ["wrong-value"]),
        ({"swiglu_limit": ".nan"}, ["wrong-type"]),
        ({"swiglu_limit": ".inf"}, ["wrong-type"]),
        ({"hidden_size": "7168.0"}, ["wrong-type"]),
        ({"hidden_size": '"7168"'}, ["wrong-type"]),
        ({"n_routed_experts": None}, ["missing-key"]),
        ({"hidden_size": "0"}, ["wrong-value"]),
        ({"n_shared_expert": "1"}, ["unknown-key"]),
        ({"activation": "geglu"}, ["wrong-value"]),
        ({"bias": "yes"}, ["wrong-type"]),
    ],
)
def test_what_a_block_may_say(facts: dict[str, str | None], rules: list[str]) -> None:
    model, findings = read(**facts)
    assert [finding.rule.name for finding in findings] == rules
    assert (model is None) == bool(rules)


def test_one_faulty_block_does_not_hide_another() -> None:
    blocks = "\n".join(
        f"  {name}: {{hidden_size: 1, moe_intermediate_size: 1, n_routed_experts: 1, num_experts_per_tok: 2, {rest}}}"
        for name, rest in (("one", "n_shared_experts: 0, activation: silu"), ("two", "activation: silu"))
    )
    _, findings = read_model("demo", sound_document(f"name: Demo\ncheckpoint: a/b\nblocks:\n{blocks}\n"))
    assert [(f.rule.name, f.place.line) for f in findings] == [("missing-key", 5), ("topk-exceeds-experts", 4)]
