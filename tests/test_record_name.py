"""Names of attested records: one for a row under a use, the same from the row and from the record of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moeshapes.record_name import FILE, file_name, file_name_of, folder_name, is_shipped
from moeshapes.row import TunedRow
from moeshapes.use import Use
from small_repository import tuned_row

USE = Use("tiny/tp2", "target", "a4w4", "silu", swiglu_limit=7.0, env={"A": "1"})


def record(row: TunedRow, use: Use) -> dict[str, Any]:
    key = {"gfx": row.key.gfx, "cu_num": row.key.cu_num, **vars(row.key.shape)}
    return {"key": key, "launch": row.launch(), "use": use.as_json() | {"id": use.id}}


def named(row: TunedRow, use: Use = USE) -> str:
    return file_name(row.key, row.launch(), use)


def test_a_record_is_named_after_what_it_is_of() -> None:
    row = tuned_row(8)
    assert FILE.fullmatch(named(row))
    assert named(row).endswith("-tiny-tp2-target-gfx950-256.json")
    assert file_name_of(record(row, USE)) == named(row)


@pytest.mark.parametrize(
    "cells", [{"us": "1", "us1": "1", "us2": "0"}, {"err1": "0.1%"}, {"tflops": "1"}, {"_tag": "x"}]
)
def test_times_and_tags_are_not_in_a_name(cells: dict[str, str]) -> None:
    assert named(tuned_row(8, **cells)) == named(tuned_row(8))


@pytest.mark.parametrize(
    "cells", [{"block_m": "32"}, {"kernelName2": "x"}, {"ksplit": "2"}, {"topk": "3"}, {"gfx": "gfx942"}]
)
def test_another_key_or_launch_is_another_name(cells: dict[str, str]) -> None:
    assert named(tuned_row(8, **cells)) != named(tuned_row(8))


@pytest.mark.parametrize(
    "change", [{"swiglu_limit": 8.0}, {"env": {}}, {"bias": True}, {"hidden_pad": 64}, {"block": "b"}]
)
def test_another_use_is_another_name(change: dict[str, Any]) -> None:
    assert named(tuned_row(8), replace(USE, **change)) != named(tuned_row(8))


def test_a_use_cannot_leave_the_folder() -> None:
    name = named(tuned_row(8), replace(USE, deployment="../../etc", block="a b\n/c"))
    assert FILE.fullmatch(name)


def test_where_records_of_a_table_stand() -> None:
    assert folder_name("generated/aiter/configs/model_configs/a_tuned_fmoe.csv") == "a_tuned_fmoe"
    assert is_shipped("generated/triton/a_tuned_fmoe.csv")
    assert not is_shipped("aiter/configs/a_tuned_fmoe.csv")
