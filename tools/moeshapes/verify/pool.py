"""Worker processes fed with jobs: a crash, a hang or a lack of memory is that job's error, and the rest goes on."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

from moeshapes.verify.child import child_environment, end_session
from moeshapes.verify.gpus import Gpu
from moeshapes.verify.job import TIME, Job
from moeshapes.verify.precompile import precompiling
from moeshapes.verify.site import PRODUCTION
from moeshapes.verify.timing import joined

LOG_TAIL_LINES = 12
_LOG_TAIL_BYTES = 1 << 16
_GRACE_S = 5.0
"""How long a worker that answers no more may take to end by itself."""
_POLL_S = 0.05
_ANSWERS = {"ready": str, "step": str, "error": str, "result": dict}


@dataclass(frozen=True)
class Outcome:
    """What became of a job: a result, or an error with the end of the worker's log."""

    job: Job
    result: dict[str, Any] | None
    error: str = ""


def default_command(threads: int, gpu: int | None) -> list[str]:
    on_gpu = [] if gpu is None else ["--gpu", str(gpu)]
    return [sys.executable, "-m", "moeshapes.verify.worker", "--threads", str(threads), *on_gpu]


@dataclass
class Schedule:
    """Hands jobs out so that those which share weights go to one worker, until a worker would be idle."""

    groups: dict[str, deque[Job]]
    taken: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> Schedule:
        groups: dict[str, deque[Job]] = {}
        for job in jobs:
            groups.setdefault(job.layer_key, deque()).append(job)
        return cls(groups)

    def take(self, held: str) -> Job | None:
        """The next job for a worker that has the weights of `held`; None where no job is left."""
        with self.lock:
            key = self._choose(held)
            if key is None:
                return None
            self.taken.add(key)
            job = self.groups[key].popleft()
            if not self.groups[key]:
                del self.groups[key]
            return job

    def stop(self) -> None:
        """Hands out nothing more."""
        with self.lock:
            self.groups.clear()

    def _choose(self, held: str) -> str | None:
        if held in self.groups:
            return held
        fresh = (key for key in self.groups if key not in self.taken)
        return next(fresh, max(self.groups, key=lambda key: len(self.groups[key]), default=None))


@dataclass
class Pool:
    """`workers` processes of `threads` threads, and one more a GPU for jobs that need its kind.

    A job may take `build_limit_s` seconds until its kernels are built and its weights are there, or `limit_s` where
    that is more, and `limit_s` from then on; its worker is killed where it takes longer. `command` gives a worker's
    command line for its threads and its GPU's number, None for those without. A GPU has a second worker for the second
    pass of what is timed; the two never work at once. `compilers` processes build kernels ahead of need.
    """

    workers: int
    threads: int
    limit_s: float
    command: Callable[[int, int | None], Sequence[str]] = default_command
    gpus: Sequence[Gpu] = ()
    build_limit_s: float = 900.0
    compilers: int = 0
    _running: set[subprocess.Popen[str]] = field(default_factory=set)

    def run(self, jobs: Sequence[Job], step: Callable[[], None] = lambda: None) -> Generator[Outcome, None, None]:
        """Yields outcomes as they come; `step` is called in a worker's thread for each sign of life.

        Workers end with the generator: close it where it is not exhausted.
        """
        outcomes = queue.Queue[Outcome]()
        schedules = {kind: Schedule.of(job for job in jobs if job.gpu == kind) for kind in {job.gpu for job in jobs}}
        threads = [
            threading.Thread(target=self._feed, args=(schedules[kind], gpu, outcomes, step), daemon=True)
            for kind, gpu in self._places(jobs)
        ]
        for thread in threads:
            thread.start()
        try:
            with precompiling(jobs, self.gpus, self.compilers):
                for _ in jobs:
                    yield outcomes.get()
        finally:
            for schedule in schedules.values():
                schedule.stop()
            self._end(threads)

    def _places(self, jobs: Sequence[Job]) -> list[tuple[str, int | None]]:
        """What each worker takes: the kind of GPU that its jobs need, and the number of its own.

        Raises ValueError where a job needs a kind of GPU that there is not.
        """
        waiting = Counter(job.gpu for job in jobs)
        places: list[tuple[str, int | None]] = [("", None)] * min(self.workers, waiting[""])
        for gpu in self.gpus:
            if sum(kind == gpu.kind for kind, _ in places) < waiting[gpu.kind]:
                places.append((gpu.kind, gpu.index))
        missing = sorted(waiting.keys() - {kind for kind, _ in places})
        if missing:
            raise ValueError(f"no worker takes jobs for {', '.join(missing)}")
        return places

    def _end(self, threads: Iterable[threading.Thread]) -> None:
        """Kills workers until no thread is left that could have started another."""
        for thread in threads:
            while thread.is_alive():
                for process in list(self._running):
                    end_session(process)
                thread.join(_POLL_S)

    def _feed(
        self, schedule: Schedule, gpu: int | None, outcomes: queue.Queue[Outcome], step: Callable[[], None]
    ) -> None:
        first, second = (_Seat(self, gpu, step) for _ in range(2))
        while (job := schedule.take(first.held)) is not None:
            outcome = first.run(job)
            if outcome.result is not None and "timing" in outcome.result:
                outcome = _with_speed(outcome, second.run(replace(job, task=TIME)))
            outcomes.put(outcome)
        first.leave()
        second.leave()


def _with_speed(first: Outcome, again: Outcome) -> Outcome:
    """The first process's outcome with what both timed; an error where the second had one."""
    assert first.result is not None
    if again.result is None:
        return Outcome(first.job, None, f"in the second process: {again.error}")
    result = dict(first.result)
    return Outcome(first.job, result | {"speed": joined([result.pop("timing"), again.result["timing"]])})


@dataclass
class _Seat:
    """Where one worker sits at a time. `held` is the layer_key of the weights that it has."""

    pool: Pool
    gpu: int | None
    step: Callable[[], None]
    held: str = ""
    worker: _Worker | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, job: Job) -> Outcome:
        if job.backend == PRODUCTION and job.env != self.environment:
            self.leave()  # it has imported AITER in another environment
            self.environment = job.env
        try:
            self.worker = self.worker or _Worker(self.pool.command(self.pool.threads, self.gpu), self.pool._running)
        except OSError as error:
            return Outcome(job, None, f"no worker could be started: {error}")
        outcome = self.worker.verify(job, self.pool, self.step)
        self.held = job.layer_key
        # After an error a GPU's context may be broken for good, and fail every job that comes next.
        if self.worker.has_ended() or (self.gpu is not None and outcome.result is None):
            self.leave()
        return outcome

    def leave(self) -> None:
        if self.worker is not None:
            self.worker.close()
        self.worker, self.held = None, ""


class _Worker:
    """One process and its log."""

    def __init__(self, command: Sequence[str], running: set[subprocess.Popen[str]]) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        self.log_read = 0
        try:
            self.process = _start(command, self.log)
        except OSError:
            self.log.close()
            raise
        self.running = running
        running.add(self.process)
        self.stopped_for = ""

    def verify(self, job: Job, pool: Pool, step: Callable[[], None]) -> Outcome:
        watch = _Watch(self._stop)
        watch.start(max(pool.build_limit_s, pool.limit_s))
        try:
            answer = self._ask(job, step, lambda: watch.start(pool.limit_s))
        finally:
            watch.stop()
        if answer is None:
            return Outcome(job, None, self._with_log(self._why_it_ended()))
        if "error" in answer:
            return Outcome(job, None, self._with_log(answer["error"]))
        self.log_read = os.fstat(self.log.fileno()).st_size
        return Outcome(job, answer["result"])

    def _ask(self, job: Job, step: Callable[[], None], ready: Callable[[], None]) -> dict[str, Any] | None:
        """The worker's answer; None where it ended without one. `ready` is called when its own time begins."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(job.to_json() + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                answer = _answer_about(job, line)
                if "ready" in answer:
                    ready()
                elif "step" in answer:
                    step()
                else:
                    return answer
        except OSError:
            pass  # it ended before it had read the job
        except ValueError as error:
            self._stop(f"answered what is no answer: {error}")
        return None

    def _stop(self, reason: str) -> None:
        self.stopped_for = reason
        end_session(self.process)

    def _why_it_ended(self) -> str:
        try:
            status = self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._stop("answered no more and was stopped")
        if self.stopped_for:
            return self.stopped_for
        if status < 0:
            killed = f"the worker was killed by {signal.Signals(-status).name}"
            return killed + (" (out of memory?)" if status == -signal.SIGKILL else "")
        return f"the worker ended with status {status}"

    def _with_log(self, reason: str) -> str:
        """The reason and the end of what this job logged. The log's position is the worker's, and stays as it is."""
        end = os.fstat(self.log.fileno()).st_size
        begin = max(self.log_read, end - _LOG_TAIL_BYTES)
        lines = os.pread(self.log.fileno(), end - begin, begin).decode("utf-8", "replace").splitlines()
        self.log_read = end
        return "\n".join([reason, *(line.rstrip() for line in lines[-LOG_TAIL_LINES:])])

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def close(self) -> None:
        end_session(self.process)
        self.running.discard(self.process)
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class _Watch:
    """Stops a worker that takes longer than it may."""

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop_worker = stop
        self._timer: threading.Timer | None = None

    def start(self, limit_s: float) -> None:
        """Begins anew."""
        self.stop()
        self._timer = threading.Timer(limit_s, self._stop_worker, [f"took longer than {limit_s:g} s and was stopped"])
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _start(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        encoding="utf-8",
        env=child_environment(),
        # Its own session: Ctrl-C reaches the parent alone, which keeps what has finished and then ends its workers.
        start_new_session=True,
    )


def _answer_about(job: Job, line: str) -> dict[str, Any]:
    """What a worker says of the job. Raises ValueError for a line that says nothing of it."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict) and job.id in (answer.get("ready"), answer.get("step"), answer.get("job")):
        kinds = [kind for kind, holds in _ANSWERS.items() if isinstance(answer.get(kind), holds)]
        if len(kinds) == 1:
            return {kinds[0]: answer[kinds[0]]}
    raise ValueError(line.strip()[:80])
