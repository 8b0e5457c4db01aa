"""What fuzzing found, each with what is done about it; the inputs themselves are in the corpus."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from fuzz.bench import Workbench
from fuzz.corpus import CORPUS
from fuzz.mutate import NUMBERS
from fuzz.targets import TARGETS
from moeshapes.adopt import adopt
from moeshapes.findings import Finding, Place, printable, render
from moeshapes.importer import import_file
from moeshapes.log_line import MARK
from moeshapes.report.serving_result import MAX_FINDINGS, read_results
from moeshapes.report.steps import Steps, steps_of
from moeshapes.report.trace_file import Trace, read_trace
from moeshapes.table import BYTE_ORDER_MARK, parse_table, read_tuned_rows
from serving_samples import MOE, sglang, trace
from small_repository import TABLE, tuned_line
from table_text import text, write


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


def test_runners_see_no_command() -> None:
    finding = Finding(BYTE_ORDER_MARK, Place("::error::x_tuned_fmoe.csv"), "a ##[add-mask]e")
    first, _ = render([finding], "text").splitlines()
    assert first.startswith("./::error::x_tuned_fmoe.csv: error MOE103 a #\\x23[add-mask]e")
    (shown,) = json.loads(render([finding], "json"))
    assert shown["message"] == finding.message
    assert "##[" not in render([finding], "json") + render([finding], "github")
    assert printable("a # [b] ## c") == "a # [b] ## c"


def test_formulas_do_not_reach_our_tables(bench: Workbench) -> None:
    tuned = parse_table(text(tuned_line(8, _tag="=1+1")), TABLE)
    (finding,) = tuned.findings
    assert finding.message == "`_tag` is `=1+1`, not plain text: a spreadsheet would run it"
    assert adopt(tuned, read_tuned_rows(tuned), "a note", bench.root, bench.declarations).written == ()


def test_a_log_of_broken_lines_is_counted(bench: Workbench) -> None:
    path = bench.write("build/server.log", (MARK.encode() + b"\n") * 150)
    *named, last, nothing = import_file(path, "server.log", "", bench.declarations).findings
    assert len(named) == 100
    assert last.message == "50 more lines about lookups cannot be read"
    assert nothing.rule.name == "nothing-to-import"


def test_what_is_no_result_is_read_no_further(tmp_path: Path) -> None:
    assert len(read_results(write(tmp_path / "a.jsonl", b"{}\n" * 1000))[1]) == MAX_FINDINGS


@pytest.mark.parametrize("name", ["random_input_len", "random_output_len", "max_concurrency"])
def test_numbers_that_are_no_floats_are_no_lengths(tmp_path: Path, name: str) -> None:
    for wrong in (10**400, -1):
        _, (finding,) = read_results(write(tmp_path / "a.json", json.dumps(sglang(2000.0, **{name: wrong})).encode()))
        assert name in finding.message


def test_numbers_that_are_no_floats_are_no_times(tmp_path: Path) -> None:
    events = json.loads(write_trace(tmp_path))["traceEvents"]
    sound = read_trace(write(tmp_path / "a.json", json.dumps(events).encode()))
    events.append({**events[2], "ts": 10**400})
    spoiled = read_trace(write(tmp_path / "a.json", json.dumps(events).encode()))
    assert isinstance(sound, Trace)
    assert spoiled == sound


@pytest.mark.parametrize("share", ["0", 1e-17])
def test_a_server_of_no_gpu_is_none(tmp_path: Path, share: object) -> None:
    server = {"tp_size": 4, "pp_size": share}
    _, (finding,) = read_results(write(tmp_path / "a.json", json.dumps(sglang(2000.0, server_info=server)).encode()))
    assert finding.message.endswith("server_info is of no GPU")


@pytest.mark.parametrize("extreme", [1e300, 1e-300, 1e12, 1e-12])
def test_rounds_that_have_nothing_in_common_are_compared_or_refused(bench: Workbench, extreme: float) -> None:
    lines = [
        json.dumps(sglang(extreme, 1 / extreme)),
        json.dumps(sglang(1 / extreme, extreme)),
        json.dumps(sglang(1.0)),
    ]
    TARGETS["serving"]("\n".join(lines).encode(), bench)


@pytest.mark.parametrize("duration", [0, -5])
def test_steps_that_take_no_time_have_no_share(bench: Workbench, tmp_path: Path, duration: float) -> None:
    """One MoE kernel takes time, and the median step none."""
    told = json.loads(write_trace(tmp_path))
    kernels = [event for event in told["traceEvents"] if event.get("cat") == "kernel"]
    first = next(kernel for kernel in kernels if kernel["name"] == MOE)
    for kernel in kernels:
        kernel["dur"] = 5 if kernel is first else duration
        kernel["ts"] = kernel["ts"] // 200 * 200
    read = read_trace(bench.write("build/trace.json", json.dumps(told).encode()))
    assert isinstance(read, Trace)
    steps = steps_of(read)
    assert isinstance(steps, Steps)
    assert all(step.moe_us >= 0 <= step.wall_us for step in steps.steps)
    TARGETS["trace"](json.dumps(told).encode(), bench)


NUMBERS_OF_RECORDS = ("ratio", "low", "high", "us", "other_us", "clock_mhz", "over_limit", "floor", "spread", "memory")


@pytest.mark.parametrize("name", NUMBERS_OF_RECORDS)
def test_no_number_of_a_record_takes_the_reports_of_all_others_away(bench: Workbench, name: str) -> None:
    """Beyond a float's range, and so near to nothing that 1 less is 1 less than nothing."""
    sound = [(CORPUS / "record" / f"{seed}.json").read_text(encoding="utf-8") for seed in ("proven", "fail")]
    found = [match for text in sound for match in re.finditer(rf'"{name}": (?:\[\s*)?(-?[\d.e-]+|"inf")', text)]
    assert found
    for match in found:
        for number in NUMBERS:
            planted = f"{match.string[: match.start(1)]}{number.decode()}{match.string[match.end(1) :]}"
            TARGETS["record"](planted.encode(), bench)


def write_trace(folder: Path) -> str:
    return gzip.decompress(trace(folder / "trace.gz", 40.0).read_bytes()).decode()
