"""Every parser survives its corpus, mutations of it and large inputs; and what judges that finds planted faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from fuzz.bench import Workbench
from fuzz.corpus import inputs
from fuzz.invariants import (
    check_declaration,
    check_findings,
    check_markdown,
    check_page,
    check_printed,
    check_table,
    tags_of,
)
from fuzz.run import Tally, attempt, mutations
from fuzz.targets import TARGETS
from moeshapes.findings import Finding, Place
from moeshapes.table import BYTE_ORDER_MARK
from process import run_python

TESTS = Path(__file__).parent.parent
MUTATIONS = 50
OF_CHECKPOINTS = ("index", "layer")
"""What safetensors reads."""
LONGEST_S, MOST_MIB = 10.0, 900


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    return Workbench(tmp_path)


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus(target: str, bench: Workbench) -> None:
    if target in OF_CHECKPOINTS:
        pytest.importorskip("safetensors")
    found = inputs(target)
    assert found
    for data in found.values():
        TARGETS[target](data, bench)


@pytest.mark.parametrize("target", TARGETS)
def test_mutations_of_it(target: str, bench: Workbench) -> None:
    if target in OF_CHECKPOINTS:
        pytest.importorskip("safetensors")
    for data in islice(mutations(target, seed=1), MUTATIONS):
        TARGETS[target](data, bench)


@pytest.mark.parametrize("target", TARGETS)
def test_large_inputs_take_bounded_time_and_memory(target: str) -> None:
    if target in OF_CHECKPOINTS:
        pytest.importorskip("safetensors")
    done = run_python("-m", "fuzz.large", target, cwd=TESTS)
    assert not done.returncode, done.stderr[-2000:]
    took = json.loads(done.stdout)
    assert took.pop("MiB") < MOST_MIB
    assert {name: seconds for name, seconds in took.items() if seconds > LONGEST_S} == {}


PLANTED: dict[str, Callable[[], None]] = {
    "an escape": lambda: check_printed("a \x1b[31m"),
    "a command": lambda: check_printed("a\n ::error::b"),
    "an old command": lambda: check_printed("a ##[error]b"),
    "a surrogate": lambda: check_printed("\ud800"),
    "markup": lambda: check_markdown("<img src=x>"),
    "a link": lambda: check_markdown("[a](https://example.com)"),
    "another's link": lambda: check_markdown('<a href="javascript:a">b</a>'),
    "an element": lambda: check_page("<p><img></p>", tags_of("<p></p>")),
    "a formula": lambda: check_table("generated/triton/a.csv", b"a,b\n1,=1+1\n"),
    "a folder": lambda: check_table("generated/other/a.csv", b"a\n"),
    "a hidden file": lambda: check_table("generated/triton/.a.csv", b"a\n"),
    "a way out": lambda: check_table("generated/triton/../../a.csv", b"a\n"),
    "a declaration elsewhere": lambda: check_declaration("models/../a.yaml", "a: 1\n"),
    "what is no finding": lambda: check_findings(["a"]),  # type: ignore[list-item]
}


@pytest.mark.parametrize("check", PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_found(check: Callable[[], None]) -> None:
    with pytest.raises((AssertionError, UnicodeEncodeError)):
        check()


def test_what_is_sound_passes() -> None:
    hostile = "\x1b[31m\n::error::x ##[add-mask]e <img> =1+1 \ud800"
    check_findings([Finding(BYTE_ORDER_MARK, Place(f"::a,b:{hostile}", 1, 2), hostile)])
    check_markdown('<details><summary>a</summary>\n<a href="https://example.com">b</a>\n</details>\n')
    check_table("generated/triton/a.csv", b"a,b\n-1,-0.5%\n")
    check_declaration("shapes/a/b.yaml", "a: 1\n")


def test_what_breaks_a_target_is_kept(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(data: bytes, bench: Workbench) -> None:
        assert data != b"bad"

    monkeypatch.setitem(TARGETS, "planted", breaks)
    tally = Tally()
    for data in (b"good", b"bad", b"bad"):
        attempt("planted", data, bench, tally)
    assert tally.inputs == 3
    assert list(tally.faults.values()) == [b"bad"]
