"""Processes of this package's own code: their environment, and a module run as a program."""

from __future__ import annotations

import os
import subprocess
import sys

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
    command = [sys.executable, "-m", f"moeshapes.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=child_environment())
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout
