"""Worker processes fed with jobs: a crash, a hang or a lack of memory becomes that job's error, and the rest goes on."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from moeshapes.verify.job import Job

LOG_TAIL_LINES = 12
_KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}
"""For glibc: without it every expanded weight is mapped and cleared by the kernel anew, a third of a worker's time."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job: a result, or an error with the end of the worker's log."""

    job: Job
    result: dict[str, Any] | None
    error: str = ""


def default_command(threads: int) -> list[str]:
    return [sys.executable, "-m", "moeshapes.verify.worker", "--threads", str(threads)]


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

    def _choose(self, held: str) -> str | None:
        if held in self.groups:
            return held
        fresh = (key for key in self.groups if key not in self.taken)
        return next(fresh, max(self.groups, key=lambda key: len(self.groups[key]), default=None))


@dataclass
class Pool:
    """`workers` processes of `threads` threads; a job that runs longer than `limit_s` seconds is killed."""

    workers: int
    threads: int
    limit_s: float
    command: Callable[[int], Sequence[str]] = default_command
    _running: set[subprocess.Popen[str]] = field(default_factory=set)

    def run(self, jobs: Sequence[Job], step: Callable[[], None] = lambda: None) -> Iterator[Outcome]:
        """Yields outcomes as they come; `step` is called in a worker's thread for each sign of life. Workers end with the iterator."""
        schedule, outcomes = Schedule.of(jobs), queue.Queue[Outcome]()
        threads = [
            threading.Thread(target=self._feed, args=(schedule, outcomes, step), daemon=True)
            for _ in range(min(self.workers, len(jobs)))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in jobs:
                yield outcomes.get()
        finally:
            for process in list(self._running):
                _kill(process)

    def _feed(self, schedule: Schedule, outcomes: queue.Queue[Outcome], step: Callable[[], None]) -> None:
        worker, held = None, ""
        while (job := schedule.take(held)) is not None:
            try:
                worker = worker or _Worker(self.command(self.threads), self._running)
            except OSError as error:
                outcomes.put(Outcome(job, None, f"no worker could be started: {error}"))
                continue
            outcome = worker.verify(job, self.limit_s, step)
            held = job.layer_key
            if worker.ended:
                worker, held = None, ""
            outcomes.put(outcome)
        if worker is not None:
            worker.close()


class _Worker:
    """One process and its log."""

    def __init__(self, command: Sequence[str], running: set[subprocess.Popen[str]]) -> None:
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=_environment(),
            # Its own session: Ctrl-C reaches the parent alone, which keeps what has finished and then ends its workers.
            start_new_session=True,
        )
        self.running = running
        running.add(self.process)
        self.ended = False
        self.timed_out = False

    def verify(self, job: Job, limit_s: float, step: Callable[[], None]) -> Outcome:
        timer = threading.Timer(limit_s, self._time_out)
        timer.start()
        try:
            return self._exchange(job, step) or self._ended(job, limit_s)
        finally:
            timer.cancel()

    def _exchange(self, job: Job, step: Callable[[], None]) -> Outcome | None:
        """The worker's answer; None where it ended without one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(job.to_json() + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                message = json.loads(line)
                if "step" in message:
                    step()
                elif "error" in message:
                    return Outcome(job, None, message["error"])
                else:
                    return Outcome(job, message["result"])
        except (OSError, ValueError):
            self._time_out()
        return None

    def _time_out(self) -> None:
        self.timed_out = True
        _kill(self.process)

    def _ended(self, job: Job, limit_s: float) -> Outcome:
        status = self.process.wait()
        self.close()
        if self.timed_out:
            reason = f"took longer than {limit_s:g} s and was stopped"
        elif status < 0:
            reason = f"the worker was killed by {signal.Signals(-status).name}"
            reason += " (out of memory?)" if status == -signal.SIGKILL else ""
        else:
            reason = f"the worker ended with status {status}"
        return Outcome(job, None, "\n".join([reason, *self._tail()]))

    def _tail(self) -> list[str]:
        self.log.seek(0)
        return [line.rstrip() for line in deque(self.log, maxlen=LOG_TAIL_LINES)]

    def close(self) -> None:
        self.ended = True
        _kill(self.process)
        self.running.discard(self.process)


def _environment() -> dict[str, str]:
    """The parent's, with the folder of this package first, so that a worker runs the code that planned its job."""
    package_parent = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([package_parent, *([inherited] if inherited else [])])
    return {**_KEEP_FREED_MEMORY, **os.environ, "PYTHONPATH": path}


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                pass
