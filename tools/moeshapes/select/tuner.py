"""AITER's tuner as a process of its own: what it is asked, its log, and the profiles that it leaves (contract 7)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from moeshapes.findings import Finding, Place
from moeshapes.select.faults import TUNER_FAILED
from moeshapes.verify.child import end_session

SCRIPT = "csrc/ck_gemm_moe_2stages_codegen/gemm_moe_tune.py"
"""Where the tuner stands below an AITER checkout."""

_DUMP = "AITER_TUNE_CANDIDATE_DUMP_DIR"
"""Names a folder into which newer tuners write every candidate, a file a shape; `-o2` has surviving pairs alone."""
_LOG_TAIL_BYTES = 400


@dataclass(frozen=True)
class Request:
    """What is to be tuned: an untuned table, by the tuner of an AITER checkout, and where its files go.

    `error_ratio` is the share of wrong elements, or the cosine distance, that the tuner lets pass; `gpus` how many it
    uses, all for None.
    """

    aiter: Path
    untuned: Path
    folder: Path
    error_ratio: float
    gpus: int | None = None

    @property
    def script(self) -> Path:
        return self.aiter / SCRIPT

    @property
    def log(self) -> Path:
        return self.folder / "tune.log"

    @property
    def candidates(self) -> Path:
        return self.folder / "candidates"

    @property
    def pairs(self) -> Path:
        return self.folder / "pairs.csv"

    def command(self) -> list[str]:
        """The command line. Shapes that `-o` has are left out by the tuner, so that a second run goes on."""
        return [
            *(sys.executable, str(self.script.absolute())),
            *("-i", str(self.untuned.absolute())),
            *("-o", str((self.folder / "tuned_fmoe.csv").absolute())),
            *("-o2", str(self.pairs.absolute())),
            *("--errRatio", f"{self.error_ratio:g}"),
            *(() if self.gpus is None else ("--mp", str(self.gpus))),
        ]


def tune(request: Request) -> list[Finding]:
    """Runs the tuner to its end, with all that it says appended to its log; a finding where it ends with an error.

    Raises OSError where it cannot be started. It and its workers end with this process, by Ctrl-C too.
    """
    request.candidates.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, _DUMP: str(request.candidates.absolute())}
    with request.log.open("ab") as log:
        process = subprocess.Popen(
            request.command(),
            cwd=request.aiter,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait()
        finally:
            end_session(process)
    if status == 0:
        return []
    ended = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    return [Finding(TUNER_FAILED, Place(str(request.log)), f"the tuner ended {ended}: {_last_line(request.log)}")]


def profiles_of(request: Request) -> tuple[Path, ...]:
    """The files with every candidate, where the tuner writes them; else that with the pairs that survived."""
    return tuple(sorted(request.candidates.glob("*.csv"))) or (request.pairs,)


def _last_line(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        lines = stream.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
