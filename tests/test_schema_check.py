from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from declared import SHAPE, sound_document
from moeshapes.recipe import RECIPES
from moeshapes.schema_check import check_schema

NAMES = ("model", "shape", "policy")


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((resources.files("moeshapes") / "schema" / f"{name}.schema.json").read_text())
    return loaded


def parts(value: object, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every schema of a property or item within a schema, with its path."""
    if not isinstance(value, dict):
        return []
    found = []
    for key, part in value.items():
        if key in ("properties", "$defs"):
            for name, sub in part.items():
                found += [(f"{path}/{name}", sub), *parts(sub, f"{path}/{name}")]
        elif key in ("items", "additionalProperties"):
            found += [(f"{path}/{key}", part)] if isinstance(part, dict) else []
            found += parts(part, f"{path}/{key}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_is_a_valid_2020_12_schema(name: str) -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(schema(name))
    assert schema(name)["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("name", NAMES)
def test_every_part_tells_an_editor_what_it_is(name: str) -> None:
    silent = [path for path, part in parts(schema(name)) if "$ref" not in part and not part.get("description")]
    untitled = [path for path, part in parts(schema(name)) if "$ref" not in part and not part.get("title")]
    assert ([path for path in silent if not path.endswith("/checkpoint/items")], untitled[1:]) == ([], [])


@pytest.mark.parametrize("name", NAMES)
def test_no_mapping_takes_unknown_keys(name: str) -> None:
    open_ones = [path for path, part in parts(schema(name)) if "properties" in part and part["additionalProperties"]]
    assert not open_ones


def test_the_recipes_are_those_of_the_registry() -> None:
    recipe = dict(parts(schema("shape")))["/recipe"]
    assert recipe["enum"] == list(RECIPES)
    assert all(name in str(recipe["description"]) for name in RECIPES)


def test_the_readme_says_what_each_recipe_is(root: Path) -> None:
    recipe = dict(parts(schema("shape")))["/recipe"]
    readme = (root / "README.md").read_text(encoding="utf-8")
    rows = zip(recipe["enum"], recipe["enumDescriptions"], strict=True)
    assert [name for name, meaning in rows if f"   | `{name}` | {meaning} |\n" not in readme] == []


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("mxfp4", ["a4w4", "a8w4", "a16w4"]),
        ("MXFP4", ["a4w4", "a8w4", "a16w4"]),
        ("fp4", ["a4w4", "a8w4", "a16w4"]),
        ("fp8", ["fp8_token", "fp8_block", "fp8_tensor", "mxfp8"]),
        ("int4", ["a16wi4"]),
    ],
)
def test_a_common_name_is_answered_with_every_recipe_that_it_may_mean(word: str, meant: list[str]) -> None:
    recipe = dict(parts(schema("shape")))["/recipe"]
    meanings = dict(zip(recipe["enum"], recipe["enumDescriptions"], strict=True))
    _, (finding,) = check_schema(sound_document(SHAPE.replace("recipe: fp8_token", f"recipe: {word}")), "shape")
    hint = finding.message.partition(": did you mean ")[2]
    assert hint.replace("), ", ") or ") == f"{' or '.join(f'`{name}` ({meanings[name]})' for name in meant)}?"


def test_a_format_that_no_recipe_has_is_said_to_be_unsupported() -> None:
    _, (finding,) = check_schema(sound_document(SHAPE.replace("recipe: fp8_token", "recipe: nvfp4")), "shape")
    assert finding.message.endswith(", and it is not supported")


def test_common_names_are_no_recipes_and_mean_recipes() -> None:
    common = dict(parts(schema("shape")))["/recipe"]["commonNames"]
    assert not set(common) & set(RECIPES)
    assert {name for meant in common.values() for name in meant} <= set(RECIPES)


def test_a_sound_document_is_returned_whole() -> None:
    document = sound_document(SHAPE)
    assert check_schema(document, "shape") == (document.value, [])


def test_the_sound_part_lacks_what_is_faulty_and_what_needs_it() -> None:
    document = sound_document(
        SHAPE.replace("tp: 4", "tp: four").replace("tokens: [1, 32]", "tokens: [1, x, 3]")
        + "  - {block: target}\n"
        + "  - {block: target, tokens: 1, override: {expert: 4}, left_out: [{tokens: 2}, {tokens: 4, reason: r}]}\n"
        + "extra: 1\n"
    )
    sound, findings = check_schema(document, "shape")
    assert "tp" not in sound
    assert "extra" not in sound
    assert sound["moe"] == [
        {"block": "target", "tokens": [1, None, 3], "shared_experts": "separate"},
        None,
        {"block": "target", "tokens": 1, "left_out": [None, {"tokens": 4, "reason": "r"}]},
    ]
    assert sorted(finding.rule.name for finding in findings) == (
        ["missing-key"] * 3 + ["unknown-key", "wrong-type", "wrong-value"]
    )


def test_the_schemas_name_each_other_in_the_files_that_they_are_for(root: Path) -> None:
    for path in (*root.glob("models/*.yaml"), *root.glob("shapes/*/*.yaml")):
        first = path.read_text(encoding="utf-8").splitlines()[0]
        prefix, _, reference = first.partition("=")
        assert prefix == "# yaml-language-server: $schema", path
        assert (path.parent / reference).resolve().parent == root / "schema", path


@pytest.mark.parametrize("name", NAMES)
def test_every_example_of_a_schema_is_one(name: str) -> None:
    from jsonschema import Draft202012Validator

    loaded = schema(name)
    shown = [(path, part, example) for path, part in parts(loaded) for example in part.get("examples", ())]
    wrong = [
        path
        for path, part, example in shown
        if list(Draft202012Validator({**part, "$defs": loaded["$defs"]}).iter_errors(example))
    ]
    assert (wrong, bool(shown)) == ([], True)


@pytest.mark.parametrize("name", NAMES)
def test_every_mapping_list_and_key_that_must_be_there_has_an_example(name: str) -> None:
    loaded = dict(parts(schema(name)))
    nested = [path for path, part in loaded.items() if part.get("type") in ("object", "array")]
    needed = [f"{path}/{key}" for path, part in loaded.items() for key in part.get("required", ())]
    assert [path for path in [*nested, *needed] if not loaded[path].get("examples")] == []


def test_a_remedy_spells_the_form_out() -> None:
    text = SHAPE.replace("gpus: [{gfx: gfx950, cu_num: 256}]", "pad: 128")
    text = text.replace("tokens: [1, 32]", "tokens: [1, 32], left_out: [1], unreachable: [12]")
    _, findings = check_schema(sound_document(text), "shape")
    assert [finding.next_step for finding in findings] == [
        "Add it, for example `gpus: [{gfx: gfx950, cu_num: 256}]`.",
        "Write for example `pad: {inter_dim: 128}`.",
        "Write for example `{tokens: [16384, 32768], reason: prefill is cut at 8192 tokens}`.",
        "Write for example `unreachable: {tokens: [12], note: AITER lists it}`.",
    ]
