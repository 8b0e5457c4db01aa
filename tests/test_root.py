"""Roots: found upwards, of the right kind, and files named as seen from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from moeshapes.root import find_configs, find_shapes_root, find_tables_root, name_from


@pytest.fixture
def shapes_root(tmp_path: Path) -> Path:
    for folder in ("shapes/models", "shapes/shapes/deep", "checkout/aiter/configs/deep"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path / "shapes"


def test_the_root_is_found_from_below(shapes_root: Path) -> None:
    assert find_shapes_root(shapes_root / "shapes" / "deep") == shapes_root
    assert find_tables_root(shapes_root) == shapes_root


def test_an_aiter_checkout_has_tables_and_no_shapes(shapes_root: Path) -> None:
    inside = shapes_root.parent / "checkout" / "aiter" / "configs" / "deep"
    assert find_tables_root(inside) == shapes_root.parent / "checkout"
    assert find_shapes_root(inside) is None


def test_aiters_configs_are_told_from_any_folder_with_a_table(tmp_path: Path) -> None:
    (tmp_path / "foo_untuned_fmoe.csv").touch()
    assert find_configs(tmp_path) is None
    (tmp_path / "tuned_fmoe.csv").touch()
    assert find_configs(tmp_path) == tmp_path
    (tmp_path / "aiter" / "configs").mkdir(parents=True)
    assert find_configs(tmp_path) == tmp_path / "aiter" / "configs"


def test_files_inside_the_root_are_named_from_it(shapes_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shapes_root)
    assert name_from(shapes_root, Path("models/a.yaml")) == "models/a.yaml"
    assert name_from(shapes_root, shapes_root / "models" / "a.yaml") == "models/a.yaml"
    assert name_from(shapes_root, Path("/elsewhere/rows.csv")) == "/elsewhere/rows.csv"
    assert name_from(None, Path("rows.csv")) == "rows.csv"
