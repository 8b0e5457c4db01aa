"""`moeshapes report` as people and workflows run it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from process import run_moeshapes, run_python
from pull_requests import commit, make_origin
from report_samples import pull_request
from serving_samples import MOE, sglang, trace, vllm, write_lines
from small_repository import TABLE, tuned_line
from table_text import text


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pull_request(tmp_path_factory.mktemp("repository"))


def test_a_pull_request_is_reported(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "summary.md"
    link = "https://e.example/{commit}/{file}#L{line}"
    done = run_moeshapes("report", "--base", "main", "--link", link, "--output", str(output), cwd=repository)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = output.read_text(encoding="utf-8")
    assert text.startswith("### moeshapes: tuned rows since ")
    assert "−12.0 % ± 0.24 faster" in text
    assert "tiny_tuned_fmoe.csv#L4" in text
    assert run_moeshapes("report", "--base", "main", "--link", link, cwd=repository).stdout == text


def test_the_page_is_written(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    done = run_moeshapes("report", "--format", "html", "--output", str(output), cwd=repository)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = output.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "5 rows, 1 deployments; 2 proven, 2 no record, 1 fail" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])  # type: ignore[index]
    assert [row["t"] for row in data["shapes"][0]["rows"]] == [1, 2, 8, 32, 64]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--base", "nowhere"), "no branch or commit 'nowhere'"),
        (("--base", "main", "--link", "javascript:{file}"), "a link begins with https://"),
        (("--base", "main", "--limit", "100"), "what is not cut needs 16384 bytes"),
        (("--base", "main", "--format", "html"), "it takes no --base"),
        (("--limit", "100000"), "--limit is for what --base reports"),
        ((), "there is no build/verify.md yet"),
    ],
)
def test_what_cannot_be_reported_is_said_in_a_line(repository: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run_moeshapes("report", *arguments, cwd=repository)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["check", "gate", "keys", "report", "page"])
def test_a_table_whose_name_is_not_utf_8_takes_no_command_down(tmp_path: Path, command: str) -> None:
    """Nothing declares its name, which `check` says, and a line of it cannot be read."""
    change = make_origin(tmp_path, tuned_line(8)).clone()
    table = os.fsencode(change.root / TABLE).replace(b"tiny", b"\xff")
    Path(os.fsdecode(table)).write_bytes(text(tuned_line(1)) + b"\xff\n")
    commit(change.root)
    link = ("--link", "https://e.example/{commit}/{file}#L{line}")
    base = ("--base", "origin/main")
    arguments = {
        "gate": ("gate", *base),
        "report": ("report", *base, *link),
        "page": ("report", "--format", "html", "--output", "page.html", *link),
    }
    done = run_moeshapes(*arguments.get(command, (command,)), cwd=change.root)
    assert done.returncode in (0, 1), done.stderr
    shown = (change.root / "page.html").read_text(encoding="utf-8") if command == "page" else done.stdout
    assert "_tuned_fmoe.csv" in shown


def test_a_base_install_is_told_what_to_install(repository: Path) -> None:
    code = (
        "import sys; sys.modules['jinja2'] = None; from moeshapes.cli import status_of; "
        "sys.exit(status_of(['report', '--base', 'main']))"
    )
    done = run_python("-c", code, cwd=repository)
    assert done.returncode == 2
    assert "pip install 'moeshapes[report]'" in done.stderr


def test_the_last_verification_needs_no_extra(tmp_path: Path) -> None:
    for name in ("models", "shapes", "build"):
        (tmp_path / name).mkdir()
    (tmp_path / "build" / "verify.md").write_text("### moeshapes verify\n", encoding="utf-8")
    code = (
        "import sys; sys.modules['jinja2'] = sys.modules['markupsafe'] = None; "
        "from moeshapes.cli import status_of; sys.exit(status_of(['report']))"
    )
    done = run_python("-c", code, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "### moeshapes verify\n")


@pytest.fixture
def rounds(tmp_path: Path) -> Path:
    """Two arms of four rounds, a file a round, and a trace of each."""
    for number, drift in enumerate((1.0, 0.99, 1.01, 1.0), 1):
        write_lines(tmp_path / f"before-{number}.jsonl", [sglang(8000.0 * drift, 20.0 / drift)])
        write_lines(tmp_path / f"after-{number}.jsonl", [sglang(8400.0 * drift * drift, 19.0 / drift)])
    trace(tmp_path / "before.json.gz", 50.0)
    trace(tmp_path / "after.json.gz", 40.0)
    return tmp_path


ARMS = ("--arm", "before=before-*.jsonl", "--arm", "after=after-*.jsonl")


def test_serving_is_compared_outside_any_repository(rounds: Path) -> None:
    traces = ("--trace", "before=before.json.gz", "--trace", "after=after.json.gz")
    done = run_moeshapes("report", "serving", *ARMS, *traces, "--reference", "MI355X=2100", cwd=rounds)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("1024/512, 16 at once"))
    assert re.split(r"  +", line) == [
        *("1024/512, 16 at once", "4", "1999.9", "2099.9", "+5.0 % ± 1.4", "20.00", "19.00", "−5.0 % ± <0.01"),
        "1.000 of 2100",
    ]
    assert "−20.0 %, 0.0 %" in done.stdout
    assert MOE in done.stdout
    assert done.stderr == "moeshapes serving: no findings, 1 shape compared\n"


def test_serving_as_markdown(rounds: Path) -> None:
    done = run_moeshapes("report", "serving", *ARMS, "--format", "md", "--output", "serving.md", cwd=rounds)
    assert (done.returncode, done.stdout) == (0, "")
    assert "| 1024/512, 16 at once | 4 | 1999.9 |" in (rounds / "serving.md").read_text(encoding="utf-8")


def test_arms_whose_settings_differ_are_refused(rounds: Path) -> None:
    write_lines(rounds / "after-4.jsonl", [sglang(8400.0, random_range_ratio=0.5)])
    done = run_moeshapes("report", "serving", *ARMS, cwd=rounds)
    assert done.returncode == 1
    assert "after-4.jsonl:1: error MOE572 1024/512, 16 at once: `random_range_ratio` is 0.5, but 1.0" in done.stdout
    assert "at once  " not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give two arms"),
        (("--arm", "before"), "`before` is not NAME=FILE"),
        (("--arm", "before=none.jsonl"), "there is no file none.jsonl"),
        (("--arm", "before=before-1.jsonl"), "two arms are compared, not 1"),
        ((*ARMS, "--reference", "MI355X"), "is not like MI355X=1234.5"),
        ((*ARMS, "--reference", "MI355X@1/1/1=5"), "no shape that was compared"),
        (("--trace", "a=before.json.gz", "--kernels", "("), "not a regular expression"),
        (("--trace", "a=*.json.gz"), "one trace an arm"),
    ],
)
def test_what_serving_lacks_is_said(rounds: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run_moeshapes("report", "serving", *arguments, cwd=rounds)
    assert done.returncode == 2
    assert said in done.stderr


def test_results_of_vllm_do_not_tell_their_gpus(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_lines(tmp_path / f"{name}.json", [vllm(5000.0), vllm(5000.0)])
    arms = ("--arm", "a=a.json", "--arm", "b=b.json")
    assert "say it with --gpus" in run_moeshapes("report", "serving", *arms, cwd=tmp_path).stderr
    done = run_moeshapes("report", "serving", *arms, "--gpus", "8", cwd=tmp_path)
    assert done.returncode == 0
    assert "625.0" in done.stdout
