"""The command line and Python, run from this checkout, whatever is installed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from moeshapes import cli

TOOLS = Path(__file__).resolve().parent.parent / "tools"


def environment() -> dict[str, str]:
    """This process's environment with the checkout's package in front, and nothing of a `make` that runs the tests."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL")
    }
    path = [str(TOOLS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}


def run_moeshapes(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command with its status and what it prints, in this process: most commands take less than their start would."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    before = Path.cwd()
    os.chdir(cwd)
    try:
        with pytest.raises(SystemExit) as ended, redirect_stdout(out), redirect_stderr(err):
            cli.main(arguments)
    finally:
        os.chdir(before)
    assert isinstance(ended.value.code, int)
    return subprocess.CompletedProcess(arguments, ended.value.code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def run_python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own; with `-m moeshapes`, the command line as a shell starts it."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)


def is_running(pid: int) -> bool:
    """Whether the process is there, and not merely unburied."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def children_of(pid: int) -> set[int]:
    """The processes that have this one as their parent."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, NotADirectoryError):
            continue
        if entry.name.isdigit() and fields[1] == str(pid) and fields[0] != "Z":
            found.add(int(entry.name))
    return found


def wait_for(condition: Callable[[], bool], within_s: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
