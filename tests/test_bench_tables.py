from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from moeshapes.bench_tables import HEADERS, Figure, count, figures, table_rows, write_tables
from moeshapes.cold_start import ColdStart, cold_start
from moeshapes.keys import check_keys
from moeshapes.table import read_table


def test_synthetic_tables_are_sound_and_free_of_collisions(tmp_path: Path) -> None:
    write_tables(tmp_path, rows=2000, files=7)
    result = check_keys(tmp_path)
    assert (result.findings, result.rows, result.tables) == ((), 2000, 7)
    tables = [read_table(path) for path in tmp_path.rglob("*.csv")]
    assert not list(chain.from_iterable(table.findings for table in tables))
    assert all(line.exact for table in tables for line in table.lines)


def test_synthetic_tables_are_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_tables(tmp_path / name, rows=100, files=3)
    contents = [[path.read_bytes() for path in sorted((tmp_path / name).rglob("*.csv"))] for name in ("one", "two")]
    assert contents[0] == contents[1]


def test_a_cold_start_is_a_process_of_its_own(tmp_path: Path) -> None:
    ballast = bytearray(200 << 20)
    start = cold_start(["--help"], tmp_path, runs=2)
    assert 0 < start.least <= start.median <= start.most
    assert 5 < start.peak_mib < 100 < len(ballast) >> 20


def test_a_command_that_cannot_run_has_no_time(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="status 2"):
        cold_start(["keys", "--absent"], tmp_path, runs=1)


def test_figures_are_shown_as_ratios() -> None:
    def start(seconds: float) -> ColdStart:
        return ColdStart(("keys",), seconds, seconds / 2, seconds * 2, seconds * 3, 99.6)

    measured = [Figure("--help", "none", start(0.1)), *(Figure("keys", "x", start(0.1 + n / 50), n) for n in (10, 20))]
    rows = table_rows(measured)
    assert [len(row) for row in rows] == [len(HEADERS)] * 3
    assert rows[2] == ("moeshapes keys", "x", "0.50 s", "0.25 s", "1.00 s", "1.50 s", "5.0 x", "1.00 x", "100 MiB")


def test_figures_cover_the_repository_aiter_and_many_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def fake(arguments: list[str], directory: Path) -> ColdStart:
        asked.append(tuple(arguments))
        return ColdStart(tuple(arguments), 1.0, 1.0, 1.0, 1.0, 1.0)

    monkeypatch.setattr("moeshapes.bench_tables.cold_start", fake)
    monkeypatch.setattr("moeshapes.bench_tables.write_pull_request", lambda root, configs, to: None)
    monkeypatch.setattr("moeshapes.bench_tables.SIZES", (10, 20))
    assert [figure.rows for figure in figures(tmp_path, tmp_path / "configs")] == [0, 0, 0, 0, 0, 0, 10, 20]
    aiter = ("--aiter", str(tmp_path / "configs"))
    assert (asked[2], asked[5]) == (("keys", *aiter), ("gate", "--base", "main", *aiter))
    assert len(asked) == count(tmp_path)
    assert len(list(figures(tmp_path))) == count(None) == 6
