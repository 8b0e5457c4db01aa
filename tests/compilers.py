"""Stand-ins for what compiles ahead of need, which processes of their own can import."""

from __future__ import annotations

import os
import time
from pathlib import Path

from moeshapes.verify.precompile import Task

NOTES = "COMPILER_NOTES"


def note(task: Task) -> None:
    """Appends a line `pid token`."""
    with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
        notes.write(f"{os.getpid()} {task.token}\n")


def note_and_fail(task: Task) -> None:
    note(task)
    raise RuntimeError("out of resources")


def note_and_hang(task: Task) -> None:
    note(task)
    time.sleep(600)


def note_and_die(task: Task) -> None:
    note(task)
    os._exit(11)


if __name__ == "__main__":
    from unittest.mock import patch

    from gpus import gpu
    from jobs import job
    from moeshapes.verify import precompile

    kind = gpu().kind
    jobs = [job(backend="portable", gpu=kind)]
    with patch.object(precompile, "_compile", note_and_hang), precompile.precompiling(jobs, [gpu()], 1):
        time.sleep(600)
