from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from csv import reader
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from declared import MODEL, SHAPE, sound_document, write_repository
from moeshapes.document import Document
from moeshapes.expand import expand
from moeshapes.findings import render
from moeshapes.generate import derived_tables
from moeshapes.model import read_model
from moeshapes.recipe import RECIPES
from moeshapes.repository import csv_path, load_declarations, tuned_name
from moeshapes.row import is_portable
from moeshapes.shape import read_shape


def test_tables_stand_where_aiter_has_them() -> None:
    assert csv_path("untuned_fmoe.csv") == "generated/aiter/configs/untuned_fmoe.csv"
    assert csv_path("tuned_fmoe.csv") == "generated/aiter/configs/tuned_fmoe.csv"
    assert csv_path("demo_untuned_fmoe.csv") == "generated/aiter/configs/model_configs/demo_untuned_fmoe.csv"
    assert csv_path("triton_untuned_fmoe.csv") == "generated/triton/triton_untuned_fmoe.csv"
    assert csv_path("triton_demo_tuned_fmoe.csv") == "generated/triton/triton_demo_tuned_fmoe.csv"
    assert tuned_name("untuned_fmoe.csv") == "tuned_fmoe.csv"
    assert tuned_name("untuned_a8w8_untuned_fmoe_ds_v3.csv") == "untuned_a8w8_tuned_fmoe_ds_v3.csv"


def test_files_that_would_not_count_are_named(tmp_path: Path) -> None:
    root = write_repository(
        tmp_path, {"demo/tp4": SHAPE, "demo/TP8": SHAPE, "De mo/tp4": SHAPE}, {"demo": MODEL, "sub/demo": MODEL}
    )
    (root / "shapes/demo/tp2.yml").write_text(SHAPE)
    (root / "shapes/README.md").write_text("not a declaration")
    _, findings = load_declarations(root)
    assert {(finding.rule.name, finding.place.file) for finding in findings} == {
        ("file-name", "models/sub/demo.yaml"),
        ("file-name", "shapes/De mo/tp4.yaml"),
        ("file-name", "shapes/demo/TP8.yaml"),
        ("file-name", "shapes/demo/tp2.yml"),
    }


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    root = write_repository(tmp_path, {})
    (tmp_path / "secret").write_text("password: x\n")
    (root / "shapes/demo").mkdir(parents=True)
    (root / "shapes/demo/link.yaml").symlink_to(tmp_path / "secret")
    _, findings = load_declarations(root)
    assert [finding.rule.name for finding in findings] == ["unreadable-document"]
    assert "password" not in render(findings, "text")


def test_a_linked_folder_is_not_looked_into(tmp_path: Path) -> None:
    elsewhere = write_repository(tmp_path / "elsewhere", {"demo/tp4": SHAPE})
    root = write_repository(tmp_path / "root", {"demo/tp4": SHAPE})
    (root / "shapes/linked").symlink_to(elsewhere / "shapes/demo")
    _, findings = load_declarations(root)
    assert [(finding.rule.name, finding.place.file) for finding in findings] == [("file-name", "shapes/linked")]
    (elsewhere / "shapes").rename(tmp_path / "shapes")
    (elsewhere / "shapes").symlink_to(tmp_path / "shapes")
    declarations, findings = load_declarations(elsewhere)
    assert [(finding.rule.name, finding.place.file) for finding in findings] == [("file-name", "shapes")]
    assert not declarations.rows


def test_a_repository_without_declarations_is_empty(tmp_path: Path) -> None:
    declarations, findings = load_declarations(tmp_path)
    assert (declarations.rows, declarations.shapes, dict(declarations.models), findings) == ((), (), {}, [])


def test_this_repository_is_sound_and_has_every_recipe(root: Path) -> None:
    declarations, findings = load_declarations(root)
    assert render(findings, "text") == ""
    assert {shape.recipe.name for shape in declarations.shapes} == set(RECIPES)
    assert {shape.model for shape in declarations.shapes} == set(declarations.models)


def test_rows_that_aiter_has_too_are_spelled_as_there(root: Path, aiter_configs: Path) -> None:
    """A declared row equals a row of AITER's file of that name, or AITER has no row of its dims and token there."""
    declarations, _ = load_declarations(root)
    lacking = set()
    for csv, rows in declarations.csvs.items():
        if is_portable(csv):
            continue
        path = next((p for p in (aiter_configs / csv, aiter_configs / "model_configs" / csv) if p.exists()), None)
        theirs = {tuple(cells) for cells in reader(path.read_text().splitlines())} if path else set()
        numbers = {cells[:5] for cells in theirs}
        for row in rows:
            if tuple(row.cells()) in theirs:
                continue
            lacking.add((csv, *row.cells()[1:5]))
            assert tuple(row.cells()[:5]) not in numbers or csv == "untuned_fmoe.csv", (csv, row)
    assert lacking == {
        ("dsv41_fp8_untuned_fmoe.csv", "5120", "640", "129", "4"),
        ("dsv41_fp8_untuned_fmoe.csv", "5120", "640", "385", "7"),
        ("gptoss_fp8fp4_untuned_fmoe.csv", "3072", "512", "128", "4"),
        ("untuned_fmoe.csv", "6144", "4096", "8", "2"),
    }


def paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value within a document's data."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def replaced(value: Any, path: tuple[str | int, ...], new: object) -> Any:
    """The data with another value at a path."""
    if not path:
        return new
    first, *rest = path
    copy = value.copy()
    copy[first] = replaced(value[first], tuple(rest), new)
    return copy


FULL: Any = {
    "model": "demo",
    "tp": 4,
    "ep": 1,
    "csv": "demo_untuned_fmoe.csv",
    "not_upstream": "r",
    "gpus": [{"gfx": "gfx950", "cu_num": 256}],
    "recipe": "a8w4",
    "gate_mode": "interleave",
    "env": {"AITER_BF16_FP8_MOE_BOUND": 0},
    "pad": {"inter_dim": 128},
    "pads": ["zeros", "arguments"],
    "doweight_stage1": False,
    "moe": [
        {
            "block": "target",
            "shared_experts": "fused",
            "tokens": [1, "8..32", 3],
            "left_out": [{"tokens": "2048..", "reason": "r"}],
            "unreachable": {"tokens": 3, "note": "n"},
            "override": {"expert": 385, "note": "n"},
        }
    ],
    "kernels": {"deny": [{"match": {"stage": 1}, "reason": "r"}]},
}
ODD: list[object] = [
    None,
    True,
    -1,
    0,
    7,
    10**30,
    0.5,
    float("inf"),
    float("nan"),
    "",
    "x",
    "3..1",
    [],
    [None],
    {},
    {"x": [1]},
]


def test_the_full_example_is_sound() -> None:
    assert read_shape("demo/tp4", document_of(FULL))[1] == []


@given(st.lists(st.tuples(st.sampled_from(list(paths(FULL))), st.sampled_from(ODD)), min_size=1, max_size=3))
def test_no_odd_value_makes_anything_raise(changes: list[tuple[tuple[str | int, ...], object]]) -> None:
    value = FULL
    for path, new in changes:
        with suppress(KeyError, IndexError, TypeError, AttributeError):
            value = replaced(value, path, new)
    shape, findings = read_shape("demo/tp4", document_of(value))
    model, _ = read_model("demo", sound_document(MODEL))
    declarations, more = expand({"demo": model}, [shape])
    assert derived_tables(declarations) or findings or more
    assert render([*findings, *more], "json")


def document_of(value: object) -> Document:
    return sound_document(json.dumps(value).replace("NaN", ".nan").replace("Infinity", ".inf"))
