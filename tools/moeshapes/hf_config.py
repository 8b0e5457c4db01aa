"""A checkpoint's config.json as the facts of a model's block: every spelling that MoE models use, none guessed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moeshapes.findings import Finding, Place
from moeshapes.rule import Rule, Severity
from moeshapes.spelling import nearest

UNREADABLE_CONFIG = Rule(
    "MOE601", "unreadable-config", Severity.ERROR,
    what="A config.json cannot be read.",
    why="It is cut off, another file, or says one thing twice.",
    fix="Take the file from the checkpoint again.",
)  # fmt: skip
CONFLICTING_FACTS = Rule(
    "MOE602", "conflicting-facts", Severity.ERROR,
    what="A config.json states one fact under two names, with two values.",
    why="Which of them the serving code reads depends on the code: a wrong guess is a wrong row.",
    fix="Find out in the model's code which one holds, and write the model file by hand.",
)  # fmt: skip
MISSING_FACT = Rule(
    "MOE603", "missing-fact", Severity.ERROR,
    what="A config.json lacks a fact that a MoE layer needs, or has it in a form that is not known.",
    why="It is not a MoE model's, or its names are new.",
    fix="Write the model file by hand, and say in `source` where the fact stands.",
)  # fmt: skip
ASSUMED_FACT = Rule(
    "MOE604", "assumed-fact", Severity.INFO,
    what="A fact of the model file does not stand in the config.json and was taken from elsewhere.",
    why="Configs leave out what their code fixes.",
    fix="Compare it with the model's code.",
)  # fmt: skip

MAX_BYTES = 4 << 20
NESTED = ("text_config", "language_config", "llm_config")
_SPELLINGS = {
    "hidden_size": ("hidden_size",),
    "routed_expert_hidden_size": ("routed_expert_hidden_size",),
    "moe_intermediate_size": ("moe_intermediate_size",),
    "n_routed_experts": ("n_routed_experts", "num_experts", "num_local_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts"),
    "n_shared_experts": ("n_shared_experts", "num_shared_experts"),
}
_NEEDED = ("hidden_size", "moe_intermediate_size", "n_routed_experts", "num_experts_per_tok")
_SHARED_WIDTHS = ("shared_expert_intermediate_size", "shared_intermediate_size")
_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "swiglu": "swiglu", "swigluoai": "swiglu",
    "situ": "situv2", "situv2": "situv2",
}  # fmt: skip
_PARAMETERS = ("swiglu_limit", "swiglu_alpha", "situ_beta", "situ_linear_beta")
_GPT_OSS: Mapping[str, Any] = {"activation": "swiglu", "swiglu_alpha": 1.702, "bias": True}
"""What gpt-oss's code fixes: its config says `silu`, and nothing of alpha or of the experts' biases."""


@dataclass(frozen=True)
class Facts:
    """The facts of one block by the names of model files, and the checkpoint where the config names it."""

    block: Mapping[str, Any]
    checkpoint: str


def read_config(content: bytes, name: str) -> tuple[Facts | None, list[Finding]]:
    """The facts in a config.json's bytes, None where they are not whole, and what is wrong or was assumed."""
    reader = _Reader(name)
    value = reader.parse(content)
    if value is None:
        return None, reader.findings
    block = reader.block(value)
    if any(finding.rule.severity is Severity.ERROR for finding in reader.findings):
        return None, reader.findings
    checkpoint = value.get("_name_or_path")
    return Facts(block, checkpoint if isinstance(checkpoint, str) else ""), reader.findings


class _Reader:
    """Reads one config, collecting findings. A fact is looked for in the config and in the text model nested in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = ""
        self.findings: list[Finding] = []
        self.faulty: set[str] = set()
        """Facts that are stated in a way that has a finding already."""

    def parse(self, content: bytes) -> dict[str, Any] | None:
        value, message, place = None, "the JSON is no object", Place(self.name)
        try:
            self.text = content.decode("utf-8") if len(content) <= MAX_BYTES else ""
            value = json.loads(self.text, object_pairs_hook=self._object)
        except json.JSONDecodeError as error:
            message, place = f"not valid JSON: {error.msg}", Place(self.name, error.lineno, error.colno)
        except (RecursionError, ValueError) as error:
            message = f"not readable JSON: {type(error).__name__}"
        if isinstance(value, dict):
            return value
        if len(content) > MAX_BYTES:
            message, place = f"the file has more than {MAX_BYTES >> 20} MiB", Place(self.name)
        self.findings.append(Finding(UNREADABLE_CONFIG, place, message))
        return None

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for key, item in pairs:
            if key in value and value[key] != item:
                self.findings.append(Finding(CONFLICTING_FACTS, self._place(key), f"`{key}` stands twice, differing"))
            value[key] = item
        return value

    def _place(self, key: str) -> Place:
        """Where the key first stands in the text."""
        match = re.search(rf'"{re.escape(key)}"\s*:', self.text)
        before = self.text[: match.start()] if match else ""
        return Place(self.name, before.count("\n") + 1, len(before) - before.rfind("\n"))

    def block(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A block's facts by the names of model files; whole where there are no errors among the findings."""
        sources = [config, *(nested for key in NESTED if isinstance(nested := config.get(key), dict))]
        found = {fact: self._number(fact, names, sources) for fact, names in _SPELLINGS.items()}
        if found["moe_intermediate_size"] is None:
            found["moe_intermediate_size"] = self._number("moe_intermediate_size", ("intermediate_size",), sources)
        found["n_shared_experts"] = self._shared_experts(found, sources)
        self.findings += self._absent([fact for fact in _NEEDED if found[fact] is None], sources)
        if found["routed_expert_hidden_size"] == found["hidden_size"]:
            del found["routed_expert_hidden_size"]
        facts = {fact: value for fact, value in found.items() if value is not None}
        return {**facts, **self._activation(config, sources)}

    def _stated(self, names: tuple[str, ...], sources: list[Mapping[str, Any]]) -> dict[str, Any]:
        """The values stated under any of the names, null counting as none, by where they stand."""
        stated: dict[str, Any] = {}
        for depth, source in enumerate(sources):
            for key in names:
                if source.get(key) is not None:
                    stated[key if not depth else f"{key} (nested)"] = source[key]
        return stated

    def _agreed(self, fact: str, names: tuple[str, ...], sources: list[Mapping[str, Any]]) -> Any:
        """The one value of a fact; None where it is not stated, or stated in two ways, which is a finding."""
        stated = self._stated(names, sources)
        values = list(stated.values())
        if any(value != values[0] for value in values):
            said = ", ".join(f"`{key}` is {json.dumps(value)[:40]}" for key, value in stated.items())
            place = self._place(next(iter(stated)).partition(" ")[0])
            self.findings.append(Finding(CONFLICTING_FACTS, place, f"{fact}: {said}"))
            self.faulty.add(fact)
            return None
        return values[0] if values else None

    def _number(self, fact: str, names: tuple[str, ...], sources: list[Mapping[str, Any]]) -> int | None:
        value = self._agreed(fact, names, sources)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        key = next(iter(self._stated(names, sources))).partition(" ")[0]
        message = f"`{key}` is {json.dumps(value)[:60]}, not a whole number"
        self.findings.append(Finding(MISSING_FACT, self._place(key), message))
        self.faulty.add(fact)
        return None

    def _absent(self, facts: list[str], sources: list[Mapping[str, Any]]) -> list[Finding]:
        about_experts = any("expert" in key or "moe" in key for source in sources for key in source)
        if {"n_routed_experts", "num_experts_per_tok"} <= set(facts) and not about_experts:
            remedy = "Nothing to do for a dense model: it has no fused-MoE rows."
            return [Finding(MISSING_FACT, Place(self.name), "not an MoE model: nothing in it is about experts", remedy)]
        absent = [fact for fact in facts if fact not in self.faulty]
        return [Finding(MISSING_FACT, Place(self.name), self._missing(fact, sources)) for fact in absent]

    def _missing(self, fact: str, sources: list[Mapping[str, Any]]) -> str:
        names = (*_SPELLINGS[fact], *(("intermediate_size",) if fact == "moe_intermediate_size" else ()))
        keys = [key for source in sources for key in source]
        close = next((hit for name in names if (hit := nearest(name, keys))), None)
        return f"none of {', '.join(f'`{name}`' for name in names)} is stated{f'; there is `{close}`' if close else ''}"

    def _shared_experts(self, found: Mapping[str, int | None], sources: list[Mapping[str, Any]]) -> int:
        """Their count; where a width is stated instead, how many experts of the routed ones' width it is."""
        count = found["n_shared_experts"]
        width, of_routed = self._number("shared width", _SHARED_WIDTHS, sources), found["moe_intermediate_size"]
        if count is not None or not width or not of_routed:
            if count is None and width is None:
                message = "the config says nothing of shared experts: 0 was taken"
                self.findings.append(Finding(ASSUMED_FACT, Place(self.name), message))
            return count or 0
        if width % of_routed:
            message = f"the shared experts' width {width} is no multiple of the routed experts' {of_routed}"
            key = next(iter(self._stated(_SHARED_WIDTHS, sources))).partition(" ")[0]
            self.findings.append(Finding(MISSING_FACT, self._place(key), message))
        return width // of_routed

    def _activation(self, config: Mapping[str, Any], sources: list[Mapping[str, Any]]) -> dict[str, Any]:
        parameters = {name: self._agreed(name, (name,), sources) for name in _PARAMETERS}
        stated = {name: value for name, value in parameters.items() if value is not None}
        if config.get("model_type") == "gpt_oss":
            message = "gpt-oss's code fixes what its config does not say: swiglu with alpha 1.702, and biases"
            self.findings.append(Finding(ASSUMED_FACT, Place(self.name), message))
            return {**_GPT_OSS, **stated}
        names = ("hidden_act", "hidden_activation")
        name = self._agreed("activation", names, sources)
        if isinstance(name, str) and name.lower() in _ACTIVATIONS:
            return {"activation": _ACTIVATIONS[name.lower()], **stated}
        if "activation" not in self.faulty:
            self.findings.append(self._no_activation(name, names, sources))
        return {}

    def _no_activation(self, name: Any, names: tuple[str, ...], sources: list[Mapping[str, Any]]) -> Finding:
        if name is None:
            return Finding(MISSING_FACT, Place(self.name), "none of `hidden_act`, `hidden_activation` is stated")
        key = next(iter(self._stated(names, sources))).partition(" ")[0]
        message = f"`{key}` is {json.dumps(name)[:60]}, none of {', '.join(dict.fromkeys(_ACTIVATIONS))}"
        remedy = "No gated activation of this project computes it: it cannot be declared yet."
        return Finding(MISSING_FACT, self._place(key), message, remedy)


def model_id(checkpoint: str) -> str:
    """The name of a checkpoint's model file: `qwen3-coder-480b-a35b-instruct`."""
    base = checkpoint.rstrip("/").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", base).strip("-._") or "model"


def facts_of(block: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A block's facts in the order of model files."""
    order = (*_SPELLINGS, "activation", *_PARAMETERS, "bias")
    return ((fact, block[fact]) for fact in order if fact in block)
