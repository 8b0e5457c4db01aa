from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from declared import SHAPE, sound_document
from moeshapes.recipe import RECIPES
from moeshapes.schema_check import check_schema

NAMES = ("model", "shape")


def schema(name: str) -> dict[str, object]:
    loaded: dict[str, object] = json.loads(
        (resources.files("moeshapes") / "schema" / f"{name}.schema.json").read_text()
    )
    return loaded


def parts(value: object, path: str = "") -> list[tuple[str, dict[str, object]]]:
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
