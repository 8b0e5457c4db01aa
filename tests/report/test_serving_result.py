from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.report.serving_result import MAX_BYTES, read_results
from serving_samples import sglang, vllm, write_lines


def rules(path: Path) -> list[str]:
    return [finding.rule.name for finding in read_results(path)[1]]


def test_sglangs_lines_are_rounds(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [sglang(3000.0, 20.5), sglang(3100.0, max_concurrency=None)])
    (first, second), findings = read_results(path)
    assert findings == []
    assert (first.shape, second.shape) == ("1024/512, 16 at once", "1024/512, unbounded")
    assert (first.throughput, first.tpot_ms, first.gpus) == (3000.0, 20.5, 4)
    assert (first.place.line, second.place.line) == (1, 2)


def test_an_old_sglang_has_no_total(tmp_path: Path) -> None:
    old = {name: value for name, value in sglang(3000.0).items() if name not in ("total_throughput", "server_info")}
    ((result,), findings) = read_results(write_lines(tmp_path / "a.jsonl", [old]))
    assert (findings, result.gpus) == ([], None)
    assert result.throughput == pytest.approx(3000.0)


@pytest.mark.parametrize("indent", [None, 2])
def test_vllms_file_is_one_result_whose_lengths_are_the_mean(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(vllm(5000.0), indent=indent), encoding="utf-8")
    ((result,), findings) = read_results(path)
    assert findings == []
    assert (result.shape, result.throughput, result.gpus) == ("1023/512, 16 at once", 5000.0, None)
    assert result.date


def test_vllms_appended_results_have_no_newline_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("\n".join(json.dumps(vllm(rate)) for rate in (5000.0, 5100.0)), encoding="utf-8")
    assert len(read_results(path)[0]) == 2


@pytest.mark.parametrize(
    ("server", "gpus"),
    [
        ({"tp_size": 8}, 8),
        ({"tp_size": 4, "pp_size": 2}, 8),
        ({"tp_size": 4, "dp_size": 2}, 8),
        ({"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, 8),
        (None, None),
        ({"tp_size": "8"}, None),
    ],
)
def test_gpus_of_a_server(tmp_path: Path, server: object, gpus: int | None) -> None:
    ((result,), _) = read_results(write_lines(tmp_path / "a.jsonl", [sglang(1.0, server_info=server)]))
    assert result.gpus == gpus


def test_what_differs_between_two_starts_is_no_setting(tmp_path: Path) -> None:
    ((result,), _) = read_results(write_lines(tmp_path / "a.jsonl", [sglang(1.0)]))
    assert {"request_rate", "random_input_len", "completed", "server_info.tp_size", "server_info.version"} <= set(
        result.settings
    )
    assert not {"server_info.port", "server_info.random_seed", "duration", "tag"} & set(result.settings)


@pytest.mark.parametrize(
    "facts", [{"failed": 3, "completed": 61}, {"completed": 61, "failed": None}, {"completed": 61}]
)
def test_failed_requests_are_found(tmp_path: Path, facts: dict[str, Any]) -> None:
    path = write_lines(tmp_path / "a.json", [vllm(1.0, **facts)])
    assert rules(path) == ["failed-requests"]
    assert "3 of 64 requests failed" in read_results(path)[1][0].message


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n\n",
        "[]",
        "{}",
        "not json",
        '{"completed": 64}',
        json.dumps(sglang(1.0, completed=0)),
        json.dumps(sglang(1.0, median_tpot_ms="fast")),
        json.dumps(sglang(float("nan"))),
        json.dumps(sglang(1.0, max_concurrency=[1])),
        json.dumps(sglang(1.0, random_input_len=float("inf"))),
        "[" * 100_000,
        '{"completed": ' + "9" * 5000 + "}",
    ],
)
def test_what_is_no_result_is_a_finding(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line, encoding="utf-8")
    assert read_results(path)[0] == []
    assert rules(path) == ["bad-result"]


def test_a_bad_line_does_not_hide_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(sglang(1.0))}\nbroken\n{json.dumps(sglang(2.0))}\n", encoding="utf-8")
    results, (finding,) = read_results(path)
    assert [result.throughput for result in results] == [1.0, 2.0]
    assert finding.place.line == 2


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moeshapes.report.serving_result.MAX_BYTES", 100)
    assert rules(write_lines(tmp_path / "a.jsonl", [sglang(1.0)])) == ["bad-result"]
    assert MAX_BYTES > 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(sglang(1.0))), JSON, max_size=6))
def test_no_value_of_a_field_is_fatal(tmp_path_factory: pytest.TempPathFactory, facts: dict[str, Any]) -> None:
    path = write_lines(tmp_path_factory.getbasetemp() / "fuzz.jsonl", [sglang(1.0, **facts)])
    results, findings = read_results(path)
    assert len(results) == 1 or findings
