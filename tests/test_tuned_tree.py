from __future__ import annotations

from pathlib import Path

from moeshapes.tuned_tree import read_portable_family, read_tuned_tree
from table_text import line, text, write


def places(path: Path, root: Path | None = None) -> list[str]:
    table = read_tuned_tree(path, root)
    assert table
    return [str(row.place) for row in table.rows]


def test_a_repository_a_checkout_and_its_configs(tmp_path: Path) -> None:
    own, aiter = tmp_path / "own", tmp_path / "aiter"
    (own / "models").mkdir(parents=True)
    (own / "shapes").mkdir()
    write(own / "generated/aiter/configs/model_configs/a_tuned_fmoe.csv", text(line()))
    configs = aiter / "aiter" / "configs"
    write(configs / "tuned_fmoe.csv", text(line()))
    write(configs / "model_configs" / "a_tuned_fmoe.csv", text(line(token="16")))
    write(configs / "model_configs" / "a_untuned_fmoe.csv", text(line(token="32")))
    write(configs / "tuned_fhmoe.csv", text(line()))
    assert places(own, own) == ["generated/aiter/configs/model_configs/a_tuned_fmoe.csv:2"]
    expected = ["aiter/configs/tuned_fmoe.csv:2", "aiter/configs/model_configs/a_tuned_fmoe.csv:2"]
    assert places(aiter, aiter) == expected
    assert [place.rpartition("/")[2] for place in places(configs)] == ["tuned_fmoe.csv:2", "a_tuned_fmoe.csv:2"]


def test_tables_of_the_portable_kernels_are_apart(tmp_path: Path) -> None:
    own, portable = tmp_path / "own", "generated/triton/triton_a_tuned_fmoe.csv"
    (own / "models").mkdir(parents=True)
    (own / "shapes").mkdir()
    write(own / portable, text(line(gfx="sm_90", cu_num="132")))
    write(own / "aiter/configs/tuned_fmoe.csv", text(line()))
    assert places(own, own) == []
    for path, expected in ((own, [portable]), (own / portable, [portable]), (own / "aiter/configs/tuned_fmoe.csv", [])):
        family = read_portable_family(path, own)
        assert [table.name for table in family.tables.values()] == expected if family else expected == []
    assert read_tuned_tree(own / portable, own) is None
    assert read_portable_family(own / "aiter", own) is None


def test_one_file_stands_alone(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.csv", text(line()))
    write(tmp_path / "b_tuned_fmoe.csv", text(line(token="16")))
    assert places(file, tmp_path) == ["mine.csv:2"]


def test_a_directory_without_tables(tmp_path: Path) -> None:
    assert read_tuned_tree(tmp_path, None) is None
