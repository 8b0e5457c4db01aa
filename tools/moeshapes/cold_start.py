"""How long commands take from a cold process, which is what a hook's user waits for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

RUNS = 10


@dataclass(frozen=True)
class ColdStart:
    """Wall seconds of whole processes of `moeshapes ARGUMENTS`: the median, least and most of RUNS."""

    arguments: tuple[str, ...]
    median: float
    least: float
    most: float


def cold_start(arguments: Sequence[str], directory: Path, runs: int = RUNS) -> ColdStart:
    """Runs the command `runs` times in `directory`; its exit status does not matter."""
    seconds = sorted(_seconds([sys.executable, "-m", "moeshapes", *arguments], directory) for _ in range(runs))
    return ColdStart(tuple(arguments), median(seconds), seconds[0], seconds[-1])


def _seconds(command: Sequence[str], directory: Path) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - started
