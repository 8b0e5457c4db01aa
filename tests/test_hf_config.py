"""config.json files of every family, as their models spell them, and what cannot be taken from one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declared import sound_document
from moeshapes.findings import Finding, has_errors
from moeshapes.hf_config import Facts, facts_of, model_id, read_config
from moeshapes.model import read_model
from moeshapes.yaml_text import model_text

EXAMPLES = Path(__file__).resolve().parent / "examples" / "configs"
CONFIGS = sorted(EXAMPLES.glob("*.json"))
SOUND: dict[str, Any] = json.loads((EXAMPLES / "deepseek.json").read_text())


def read(config: object) -> tuple[Facts | None, list[Finding]]:
    return read_config(json.dumps(config, indent=2).encode(), "config.json")


def message_of(config: object) -> str:
    facts, findings = read(config)
    assert facts is None
    errors = [finding for finding in findings if has_errors([finding])]
    assert len(errors) == 1, errors
    return f"{errors[0].rule.name}: {errors[0].message}"


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_each_familys_spelling_gives_its_model_file(config: Path) -> None:
    facts, findings = read_config(config.read_bytes(), config.name)
    assert not has_errors(findings)
    assert facts
    text = model_text(config.stem, f"example/{config.stem}", "config.json of the checkpoint", facts_of(facts.block))
    assert text == config.with_suffix(".yaml").read_text()
    assert read_model("a", sound_document(text))[1] == []


def test_what_was_not_stated_is_said() -> None:
    _, findings = read_config((EXAMPLES / "gpt-oss.json").read_bytes(), "config.json")
    assert [finding.rule.name for finding in findings] == ["assumed-fact", "assumed-fact"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_experts": 128}, "conflicting-facts: n_routed_experts: `n_routed_experts` is 256, `num_experts` is 128"),
        ({"num_experts_per_token": 6}, "conflicting-facts: num_experts_per_tok:"),
        ({"text_config": {"hidden_size": 4096}}, "conflicting-facts: hidden_size: `hidden_size` is 7168,"),
        ({"hidden_activation": "gelu"}, "conflicting-facts: activation:"),
        ({"n_routed_experts": None}, "missing-fact: none of `n_routed_experts`, `num_experts`, `num_local_experts`"),
        ({"hidden_size": "7168"}, 'missing-fact: `hidden_size` is "7168", not a whole number'),
        ({"hidden_size": True}, "missing-fact: `hidden_size` is true"),
        ({"hidden_act": "gelu_pytorch_tanh"}, 'missing-fact: `hidden_act` is "gelu_pytorch_tanh"'),
        ({"hidden_act": "relu2"}, 'missing-fact: `hidden_act` is "relu2"'),
        ({"hidden_act": None}, "missing-fact: none of `hidden_act`"),
        (
            {"n_shared_experts": None, "shared_expert_intermediate_size": 3000},
            "missing-fact: the shared experts' width",
        ),
    ],
    ids=str,
)
def test_what_is_not_clear_is_refused(changes: dict[str, Any], message: str) -> None:
    assert message_of({**SOUND, **changes}).startswith(message)


def test_a_dense_model_is_no_moe_model() -> None:
    dense = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "hidden_act": "silu"}
    assert message_of(dense) == "missing-fact: not an MoE model: nothing in it is about experts"


def test_a_finding_stands_at_the_key_in_the_text() -> None:
    _, findings = read({**SOUND, "hidden_size": "wide"})
    assert str(findings[0].place) == "config.json:2:3"


def test_a_misspelt_key_is_suggested() -> None:
    config = {
        key: value for key, value in SOUND.items() if key != "moe_intermediate_size" and key != "intermediate_size"
    }
    assert "there is `moe_intermediate_sizes`" in message_of({**config, "moe_intermediate_sizes": 2048})


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff{}", b"[" * 100_000, b'{"a": 1e999999, "b": ' + b"9" * 5000 + b"}"]
)
def test_what_is_no_config_is_refused(content: bytes) -> None:
    facts, findings = read_config(content, "config.json")
    assert facts is None
    assert findings


def test_a_key_that_stands_twice_with_two_values_is_refused() -> None:
    text = json.dumps(SOUND).replace("{", '{"hidden_size": 4096, ', 1)
    facts, findings = read_config(text.encode(), "config.json")
    assert facts is None
    assert "`hidden_size` stands twice" in findings[0].message


_VALUES = st.none() | st.booleans() | st.integers(-5, 10_000) | st.floats() | st.text(max_size=5) | st.just("silu")
_KEYS = st.sampled_from([*SOUND, "num_experts", "swiglu_limit", "shared_expert_intermediate_size", "text_config"])


@given(st.dictionaries(_KEYS, _VALUES | st.dictionaries(_KEYS, _VALUES)))
def test_any_config_is_read_or_refused(config: dict[str, Any]) -> None:
    facts, findings = read(config)
    assert (facts is None) == has_errors(findings)


@given(st.text(max_size=40))
def test_a_models_file_name_is_always_a_legal_one(checkpoint: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", model_id(checkpoint))
