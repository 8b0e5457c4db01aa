"""Whatever a worker does becomes its job's outcome, each job has one, and no worker stays behind."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpus import gpu
from jobs import STAND_IN, job, problem
from moeshapes.verify.job import Job
from moeshapes.verify.pool import LOG_TAIL_LINES, Outcome, Pool, Schedule
from process import is_running, wait_for


def stand_in(threads: int, gpu: int | None) -> list[str]:
    return [sys.executable, "-I", str(STAND_IN)]


def pool(workers: int = 1, limit_s: float = 60.0) -> Pool:
    return Pool(workers, 1, limit_s, stand_in, build_limit_s=limit_s)


def named(*names: str) -> list[Job]:
    """A job a name, each with weights of its own, so that any worker may have any."""
    return [job(name, id=f"{name}-{number}", seed=number) for number, name in enumerate(names)]


def outcomes(jobs: Sequence[Job], with_pool: Pool | None = None) -> dict[str, Outcome]:
    done = list((with_pool or pool()).run(jobs))
    assert Counter(outcome.job.id for outcome in done) == Counter(each.id for each in jobs)
    return {outcome.job.id: outcome for outcome in done}


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notes"
    monkeypatch.setenv("STAND_IN_NOTES", str(path))
    return path


def notes_of(path: Path) -> list[tuple[int, str]]:
    """Which process began which job, in order."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(int(pid), name) for pid, name in (line.split() for line in lines)]


def gone(pids: Iterable[int]) -> bool:
    watched = list(pids)
    return wait_for(lambda: not any(map(is_running, watched)), 10)


BREAKDOWNS = {
    "exit": "the worker ended with status 7",
    "segv": "the worker was killed by SIGSEGV",
    "kill": "the worker was killed by SIGKILL (out of memory?)",
    "garbage": "answered what is no answer: Loading kernels...",
    "number": "answered what is no answer: 5",
    "deep": "answered what is no answer: [[[",
    "empty": "answered what is no answer: ",
    "both": "answered what is no answer: ",
    "stranger": 'answered what is no answer: {"job": "another"',
    "bytes": "answered what is no answer: ",
}


@pytest.mark.parametrize(("behaviour", "reason"), BREAKDOWNS.items(), ids=BREAKDOWNS)
def test_a_breakdown_is_the_jobs_error_and_the_rest_goes_on(behaviour: str, reason: str, notes: Path) -> None:
    done = outcomes(named("pass", behaviour, "pass"))
    assert done["pass-0"].result == done["pass-2"].result == {"verdict": "pass"}
    broken = done[f"{behaviour}-1"]
    assert broken.result is None
    assert broken.error.startswith(reason)
    first, second, third = (pid for pid, _ in notes_of(notes))
    assert first == second != third
    assert gone({first, third})


def test_a_crash_shows_the_end_of_the_log() -> None:
    error = outcomes(named("log", "exit"))["exit-1"].error
    _, *log = error.splitlines()
    assert log == [f"line {n} of exit-1" for n in range(21 - LOG_TAIL_LINES, 21)]


def test_an_exception_in_a_job_shows_its_own_log_and_keeps_the_worker(notes: Path) -> None:
    done = outcomes(named("log", "fail", "log", "fail", "pass"))
    assert done["fail-1"].error == "ValueError: fail-1\nthe cause of fail-1"
    assert done["fail-3"].error == "ValueError: fail-3\nthe cause of fail-3"
    assert done["pass-4"].result
    assert len({pid for pid, _ in notes_of(notes)}) == 1


@pytest.mark.parametrize("behaviour", ["hang", "work"])
def test_a_job_beyond_its_limit_is_stopped(behaviour: str, notes: Path) -> None:
    began = time.monotonic()
    done = outcomes(named("pass", behaviour, "pass"), pool(limit_s=1.0))
    assert time.monotonic() - began < 30
    assert done[f"{behaviour}-1"].error.startswith("took longer than 1 s and was stopped")
    assert done["pass-2"].result
    assert gone(pid for pid, _ in notes_of(notes))


def test_a_jobs_own_time_begins_when_its_kernels_are_built() -> None:
    limits = pool(limit_s=1.5)
    done = outcomes(named("late", "stuck"), limits)
    assert done["late-0"].result == {"verdict": "pass"}
    assert done["stuck-1"].error.startswith("took longer than 1.5 s and was stopped")


def test_who_allows_a_job_more_allows_its_kernels_more() -> None:
    """Of AITER's, which it compiles when they are first called, some take longer than all else."""
    (outcome,) = Pool(1, 1, 30.0, stand_in, build_limit_s=0.5).run([job("late")])
    assert outcome.result == {"verdict": "pass"}


def test_a_timed_row_is_timed_in_a_second_process_too(notes: Path) -> None:
    done = outcomes([replace(each, speed=True) for each in named("timed", "pass", "timed")])
    assert done["pass-1"].result == {"verdict": "pass"}
    speed = done["timed-2"].result["speed"] if done["timed-2"].result else {}
    assert [found["us"] for found in speed["noise"]] == [1.0, 2.0]
    assert "timing" not in (done["timed-0"].result or {})
    first, second = dict.fromkeys(pid for pid, _ in notes_of(notes))
    assert [pid for pid, _ in notes_of(notes)] == [first, second, first, first, second]


def test_a_second_process_that_breaks_down_is_the_jobs_error() -> None:
    error = outcomes([replace(each, speed=True) for each in named("untimed")])["untimed-0"].error
    assert error.startswith("in the second process: the worker ended with status 7")


@pytest.mark.parametrize("behaviour", ["parent", "orphan"])
def test_what_a_worker_started_ends_with_it(behaviour: str) -> None:
    error = outcomes(named(behaviour), pool(limit_s=2.0))[f"{behaviour}-0"].error
    _, child = error.splitlines()
    assert gone([int(child.removeprefix("child "))])


def test_a_worker_that_answers_no_more_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moeshapes.verify.pool._GRACE_S", 0.2)
    done = outcomes(named("silent", "pass"))
    assert done["silent-0"].error == "answered no more and was stopped"
    assert done["pass-1"].result


def test_signs_of_life_are_passed_on() -> None:
    steps = list[int]()
    list(pool().run(named("steps", "steps"), lambda: steps.append(1)))
    assert len(steps) == 4


def test_a_worker_that_cannot_be_started_is_every_jobs_error() -> None:
    done = outcomes(named("pass", "pass"), Pool(2, 1, 60.0, lambda threads, gpu: ["/nonexistent/python"]))
    assert all(outcome.error.startswith("no worker could be started: ") for outcome in done.values())


def test_no_job_needs_no_worker() -> None:
    assert list(Pool(2, 1, 60.0, lambda threads, gpu: pytest.fail("started")).run([])) == []


def test_a_closed_run_leaves_nothing_running_and_begins_nothing_more(notes: Path) -> None:
    running = pool(workers=2).run(named("pass", "hang", "hang", *["pass"] * 20))
    assert next(running).result
    assert wait_for(lambda: sum(name.startswith("hang") for _, name in notes_of(notes)) == 2, 30)
    begun = notes_of(notes)
    running.close()
    assert gone(pid for pid, _ in begun)
    time.sleep(0.3)
    assert notes_of(notes) == begun
    assert not [thread for thread in threading.enumerate() if thread is not threading.main_thread()]


def test_workers_share_neither_terminal_signals_nor_session(notes: Path) -> None:
    running = pool().run(named("pass", "hang"))
    next(running)
    ((pid, _), *_) = notes_of(notes)
    assert os.getsid(pid) == pid != os.getsid(0)
    running.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# --- workers with a GPU


def on_gpu(*names: str, kind: str = "sm_90/132") -> list[Job]:
    return [replace(each, gpu=kind, device="cuda") for each in named(*names)]


def test_each_gpu_has_a_worker_of_its_own_and_jobs_go_to_their_kind(notes: Path) -> None:
    asked = list[int | None]()

    def command(threads: int, number: int | None) -> list[str]:
        asked.append(number)
        return stand_in(threads, number)

    gpus = [gpu(0), gpu(1), gpu(2, cu_num=114), gpu(3, gfx="sm_80")]
    jobs = [*on_gpu(*["pass"] * 6), *on_gpu("steps", kind="sm_90/114"), *named("log", "log")]
    jobs = [replace(each, id=f"{number}") for number, each in enumerate(jobs)]
    done = outcomes(jobs, Pool(2, 1, 60.0, command, gpus))
    assert all(outcome.result for outcome in done.values())
    assert sorted(asked, key=str) == [0, 1, 2, None, None]
    kinds = {(pid, done[name].job.gpu) for pid, name in notes_of(notes)}
    assert len(kinds) == len({pid for pid, _ in kinds})


def test_no_more_workers_are_started_than_there_are_jobs(notes: Path) -> None:
    outcomes(on_gpu("pass"), Pool(2, 1, 60.0, stand_in, [gpu(0), gpu(1)]))
    assert len(notes_of(notes)) == 1


def test_after_any_error_on_a_gpu_its_worker_is_replaced(notes: Path) -> None:
    done = outcomes(on_gpu("pass", "fail", "pass", "pass"), Pool(1, 1, 60.0, stand_in, [gpu()]))
    assert done["fail-1"].error == "ValueError: fail-1\nthe cause of fail-1"
    first, second, third, fourth = (pid for pid, _ in notes_of(notes))
    assert first == second != third == fourth
    assert gone({first, third})


def test_a_job_for_a_gpu_that_is_not_there_is_a_mistake_of_the_plan() -> None:
    with pytest.raises(ValueError, match="no worker takes jobs for sm_90/132"):
        next(Pool(1, 1, 60.0, stand_in, [gpu(cu_num=114)]).run(on_gpu("pass")))


# --- which job goes to which worker


def in_group(group: int, number: int) -> Job:
    return job(f"pass {group}/{number}", id=f"{group}/{number}", seed=group)


def test_jobs_that_share_weights_go_to_one_worker() -> None:
    schedule = Schedule.of([in_group(group, number) for number in range(3) for group in (1, 2)])
    first, second = schedule.take(""), schedule.take("")
    assert first
    assert second
    assert first.seed != second.seed
    for held in (first, second) * 2:
        taken = schedule.take(held.layer_key)
        assert taken
        assert taken.seed == held.seed
    assert schedule.take(first.layer_key) is None


def test_an_idle_worker_helps_with_the_largest_group() -> None:
    schedule = Schedule.of([*(in_group(1, n) for n in range(2)), *(in_group(2, n) for n in range(5))])
    assert [schedule.take("") for _ in range(2)] == [in_group(1, 0), in_group(2, 0)]
    assert schedule.take("") == in_group(2, 1)


def test_a_stopped_schedule_hands_out_nothing() -> None:
    schedule = Schedule.of([in_group(1, 0)])
    schedule.stop()
    assert schedule.take("") is None


@given(
    groups=st.lists(st.integers(0, 4), max_size=20),
    turns=st.lists(st.integers(0, 3), max_size=60),
)
def test_every_job_is_handed_out_once_and_no_worker_leaves_its_group_early(groups: list[int], turns: list[int]) -> None:
    jobs = [in_group(group, number) for number, group in enumerate(groups)]
    schedule, held, taken = Schedule.of(jobs), dict[int, str](), list[Job]()
    for worker in itertools.chain(turns, itertools.repeat(0, len(jobs))):
        left = {each.layer_key for each in jobs if each not in taken}
        mine = held.get(worker, "")
        given_out = schedule.take(mine)
        if given_out is None:
            assert not left
            continue
        assert mine not in left or given_out.layer_key == mine
        held[worker] = given_out.layer_key
        taken.append(given_out)
    assert sorted(each.id for each in taken) == sorted(each.id for each in jobs)


@settings(max_examples=8)
@given(
    behaviours=st.lists(st.sampled_from(["pass", "fail", "exit", "garbage"]), min_size=1, max_size=8),
    workers=st.integers(1, 3),
)
def test_every_job_has_one_outcome_whatever_workers_do(behaviours: list[str], workers: int) -> None:
    jobs = [job(name, id=f"{name}-{n}", what=problem(topk=1 + n % 3)) for n, name in enumerate(behaviours)]
    done = outcomes(jobs, pool(workers))
    assert {name for name, outcome in done.items() if outcome.result} == {
        each.id for each in jobs if each.name == "pass"
    }
