"""A worker for tests of the pool: does what the first word of a job's name says, without torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

NOTES = os.environ.get("STAND_IN_NOTES")
"""A file that gets a line `pid job` for each job that is begun."""


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        if NOTES:
            with open(NOTES, "a", encoding="utf-8") as notes:
                notes.write(f"{os.getpid()} {job['id']}\n")
        name = job["name"].split()[0]
        (TIMES if job["task"] == "time" else BEHAVIOURS)[name](job["id"])


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def succeed(job: str) -> None:
    say(job=job, result={"verdict": "pass"})


def succeed_with_steps(job: str) -> None:
    say(step=job)
    say(step=job)
    succeed(job)


def late(job: str) -> None:
    time.sleep(1)
    say(ready=job)
    time.sleep(1)
    succeed(job)


def stuck(job: str) -> None:
    say(ready=job)
    hang(job)


def succeed_timed(job: str) -> None:
    say(job=job, result={"verdict": "pass", "timing": timing(1.0)})


def time_again(job: str) -> None:
    say(job=job, result={"timing": timing(2.0)})


def timing(us: float) -> dict[str, object]:
    found = {"verdict": "same", "us": us}
    compared = [{"against": "baseline", "launched": ["kernel"], "pass": found}]
    return {"tokens": 8, "calls": 10, "reuse_bytes": 0, "comparisons": compared, "noise": found}


def log(job: str) -> None:
    print(f"a library says {job}", file=sys.stderr, flush=True)
    succeed(job)


def fail(job: str) -> None:
    print(f"the cause of {job}", file=sys.stderr, flush=True)
    say(job=job, error=f"ValueError: {job}")


def exit_at_once(job: str) -> None:
    print("\n".join(f"line {n} of {job}" for n in range(1, 21)), file=sys.stderr, flush=True)
    os._exit(7)


def hang(job: str) -> None:
    print(f"{job} is stuck", file=sys.stderr, flush=True)
    time.sleep(600)


def hang_with_a_child(job: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"child {child.pid}", file=sys.stderr, flush=True)
    time.sleep(600)


def leave_a_child(job: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"child {child.pid}", file=sys.stderr, flush=True)
    os._exit(3)


def work_in_steps(job: str) -> None:
    for _ in range(600):
        say(step=job)
        time.sleep(0.1)


def stop_answering(job: str) -> None:
    os.close(1)
    time.sleep(600)


def kill_itself(number: signal.Signals) -> Callable[[str], None]:
    return lambda job: os.kill(os.getpid(), number)


def say_nonsense(text: str) -> Callable[[str], None]:
    def say_it(job: str) -> None:
        print(text.replace("JOB", job), flush=True)
        time.sleep(600)

    return say_it


BEHAVIOURS: dict[str, Callable[[str], None]] = {
    "pass": succeed,
    "steps": succeed_with_steps,
    "log": log,
    "fail": fail,
    "exit": exit_at_once,
    "hang": hang,
    "parent": hang_with_a_child,
    "orphan": leave_a_child,
    "work": work_in_steps,
    "late": late,
    "stuck": stuck,
    "timed": succeed_timed,
    "untimed": succeed_timed,
    "silent": stop_answering,
    "segv": kill_itself(signal.SIGSEGV),
    "kill": kill_itself(signal.SIGKILL),
    "garbage": say_nonsense("Loading kernels..."),
    "number": say_nonsense("5"),
    "deep": say_nonsense("[" * 100_000),
    "empty": say_nonsense('{"job": "JOB"}'),
    "both": say_nonsense('{"job": "JOB", "result": {}, "error": "x"}'),
    "stranger": say_nonsense('{"job": "another", "result": {}}'),
    "bytes": say_nonsense("\udcff"),
}

TIMES: dict[str, Callable[[str], None]] = {"timed": time_again, "untimed": exit_at_once}
"""The same for jobs that ask for times alone."""


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    main()
