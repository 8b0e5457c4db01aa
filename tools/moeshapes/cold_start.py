"""How long commands take from a cold process, which is what a hook's user waits for, and how much memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from moeshapes.verify.child import child_environment

RUNS = 10
# Measured by a process of its own: a child's peak memory is at least that of the process which starts it.
_STOPWATCH = """
import json, resource, subprocess, sys, time
seconds = []
for _ in range(int(sys.argv[1])):
    started = time.perf_counter()
    done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    seconds.append(time.perf_counter() - started)
    if done.returncode not in (0, 1) or b"Error" in done.stderr:
        sys.exit(f"{sys.argv[2:]}: status {done.returncode}: {done.stderr.decode()}")
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([sorted(seconds), (usage.ru_utime + usage.ru_stime) / len(seconds), usage.ru_maxrss]))
"""
_RSS_PER_MIB = 1 << 20 if sys.platform == "darwin" else 1 << 10


@dataclass(frozen=True)
class ColdStart:
    """Wall seconds of whole processes of `moeshapes ARGUMENTS`: the median, least and most of RUNS.

    Also their mean processor seconds, which a busy machine hardly changes, and the largest peak of memory.
    """

    arguments: tuple[str, ...]
    median: float
    least: float
    most: float
    processor: float
    peak_mib: float


def cold_start(arguments: Sequence[str], directory: Path, runs: int = RUNS) -> ColdStart:
    """Runs the command `runs` times in `directory`; findings do not matter. Raises RuntimeError where it cannot run."""
    command = [sys.executable, "-c", _STOPWATCH, str(runs), sys.executable, "-m", "moeshapes", *arguments]
    environment = {**os.environ, "PYTHONPATH": child_environment()["PYTHONPATH"]}
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    seconds, processor, peak = json.loads(done.stdout)
    return ColdStart(tuple(arguments), median(seconds), seconds[0], seconds[-1], processor, peak / _RSS_PER_MIB)
