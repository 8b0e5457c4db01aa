"""AITER's tuner is run with its own flags, its log is kept, and what it leaves is read."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest

from moeshapes.select.tuner import SCRIPT, Request, profiles_of, tune
from process import is_running, wait_for
from profiles import EXAMPLES

STAND_IN = Path(__file__).with_name("stand_in_tuner.py")


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    script = tmp_path / "aiter" / SCRIPT
    script.parent.mkdir(parents=True)
    shutil.copy(STAND_IN, script)
    monkeypatch.setenv("STAND_IN_KERNELS", str(EXAMPLES / "positive" / "kernels.csv"))
    monkeypatch.setenv("STAND_IN_PAIRS", str(EXAMPLES / "positive" / "pairs.csv"))
    untuned = tmp_path / "tiny untuned; fmoe.csv"
    untuned.write_text("token,model_dim,q_type\n8,256,QuantType.per_1x32\n", encoding="utf-8")
    return Request(tmp_path / "aiter", untuned, tmp_path / "build" / "select" / "tiny", 0.1)


def test_every_candidate_is_read_where_the_tuner_writes_them(request_: Request) -> None:
    assert tune(request_) == []
    assert [path.read_bytes() for path in profiles_of(request_)] == [
        (EXAMPLES / "positive" / "kernels.csv").read_bytes()
    ]
    assert "errRatio 0.1 and mp 8" in request_.log.read_text()


def test_an_older_tuner_leaves_pairs(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_TUNER", "old")
    assert tune(request_) == []
    assert profiles_of(request_) == (request_.pairs,)
    assert request_.pairs.exists()


def test_options_are_passed_on_as_a_list(request_: Request) -> None:
    """No shell sees a file's name."""
    asked = Request(request_.aiter, request_.untuned, request_.folder, 0.5, gpus=2)
    command = asked.command()
    assert command[:2] == [sys.executable, str(request_.aiter / SCRIPT)]
    assert command[command.index("-i") + 1] == str(request_.untuned)
    assert command[-4:] == ["--errRatio", "0.5", "--mp", "2"]
    assert tune(asked) == []
    assert "errRatio 0.5 and mp 2" in asked.log.read_text()


def test_a_tuner_that_fails_is_a_finding_with_its_last_word_and_what_it_has_is_read(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_TUNER", "fail")
    (finding,) = tune(request_)
    assert (finding.rule.id, finding.place.file) == ("MOE535", str(request_.log))
    assert finding.message == "the tuner ended with status 3: no valid candidate found for a shape"
    assert profiles_of(request_) != (request_.pairs,)


def test_its_log_is_kept_over_runs(request_: Request) -> None:
    tune(request_)
    tune(request_)
    assert request_.log.read_text().count("tuning with") == 2


def children() -> set[int]:
    """The processes that this one's main thread has started."""
    return {int(child) for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()}


def test_it_ends_with_whoever_started_it(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_TUNER", "hang")
    started, there_before = list[int](), children()

    def interrupt() -> None:
        wait_for(lambda: request_.log.exists() and request_.log.stat().st_size > 0, 10)
        # Other tests of this process may have left helpers of multiprocessing's own.
        started.extend(children() - there_before)
        os.kill(os.getpid(), 2)

    thread = threading.Thread(target=interrupt)
    thread.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        tune(request_)
    thread.join()
    assert time.monotonic() - began < 30
    assert started
    assert not any(is_running(child) for child in started)
