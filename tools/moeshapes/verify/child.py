"""Child processes: the environment of this package's own code, a module run as a program, and how they are ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

_BETWEEN_LOOKS_S = 1.0
_KEEP_FREED_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}
"""For glibc: without it every expanded weight is mapped and cleared by the kernel anew, a third of a worker's time."""


def child_environment() -> dict[str, str]:
    """The parent's, with the folder of this package first, so that a child runs the code that planned its job."""
    package_parent = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([package_parent, *([inherited] if inherited else [])])
    return {**_KEEP_FREED_MEMORY, **os.environ, "PYTHONPATH": path}


def printed_by(module: str, *arguments: str) -> str:
    """What a module of this package prints as a program. Raises RuntimeError with the end of its log where it fails."""
    done = _run(module, *arguments)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


@dataclass(frozen=True)
class Answer:
    """The last line that a program printed: libraries may have printed before it. `problem` says why there is none."""

    line: str = ""
    problem: str = ""


def answer_of(module: str, within_s: float, asking: str, unasked: str) -> Answer:
    """What a module of this package answers as a program. Its problem is the end of its log; where that is empty or
    there is none, `asking` names what ended, and `unasked` says what could not be done.
    """
    try:
        done = _run(module, within_s=within_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(problem=f"{unasked}: {error}")
    if done.returncode:
        return Answer(problem=_last_line(done.stderr) or f"{asking} ended with status {done.returncode}")
    return Answer(_last_line(done.stdout))


def _run(module: str, *arguments: str, within_s: float | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"moeshapes.{module}", *arguments]
    environment = child_environment()
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, timeout=within_s, env=environment
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def end_session(process: subprocess.Popen[Any]) -> None:
    """Kills a process that leads a session of its own, and what it has started.

    That may have outlived it, and hold its end of a pipe.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_with_parent(parent: int) -> None:
    """Lets this process end when `parent`, which is its own, has ended, whatever it is busy with: a kernel that never
    ends reads no closed pipe. What it has started ends too, where it leads a session of its own.
    """
    threading.Thread(target=_outlive_no_parent, args=(parent,), daemon=True).start()


def _outlive_no_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_BETWEEN_LOOKS_S)
    if os.getsid(0) == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
