"""A worker: verifies jobs that come as lines of JSON on stdin, answers in lines of JSON on stdout.

It needs torch and a backend, nothing else of the repository. Answers are `{"ready": job}` once kernels are built and
weights are there, `{"step": job}` now and then while it works, then `{"job": id, "result": {...}}` or
`{"job": id, "error": text}`. What libraries print goes to stderr, where it is not taken for one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import torch

from moeshapes.backends.base import Backend
from moeshapes.verify.check import LayerCache, check
from moeshapes.verify.child import end_with_parent
from moeshapes.verify.gpus import describe
from moeshapes.verify.job import SCREEN, TIME, VERIFY, Job
from moeshapes.verify.site import PRODUCTION


def load_backend(name: str) -> Backend:
    """The backend of that name. Raises ValueError for a name that is unknown."""
    if name == "emulate":
        from moeshapes.backends.emulate import EmulateBackend

        return EmulateBackend()
    if name == "portable":
        from moeshapes.backends.portable.backend import PortableBackend

        return PortableBackend()
    if name == PRODUCTION:
        from moeshapes.backends.production.backend import ProductionBackend

        return ProductionBackend()
    raise ValueError(f"no backend is called {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Verify jobs from stdin.")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--gpu", type=int, help="the GPU that jobs for one run on")
    options = parser.parse_args()
    end_with_parent(os.getppid())
    torch.set_num_threads(options.threads)
    if options.gpu is not None:
        torch.cuda.set_device(options.gpu)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin, answers, load_backend)


def serve(jobs: TextIO, answers: TextIO, backend_of: Callable[[str], Backend]) -> None:
    """Verifies one job after another until stdin ends."""
    cache, backends = LayerCache(), dict[str, Backend]()

    def answer(**message: Any) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    for line in jobs:
        job = Job.from_json(line)
        try:
            if job.backend == PRODUCTION:
                _adopt(job.env)
            if job.backend not in backends:
                backends[job.backend] = backend_of(job.backend)
            with torch.inference_mode():
                result = _done(job, backends[job.backend], cache, answer)
        except Exception as error:
            traceback.print_exc()
            answer(job=job.id, error=f"{type(error).__name__}: {error}")
        else:
            answer(job=job.id, result=result)


def _done(job: Job, backend: Backend, cache: LayerCache, answer: Callable[..., None]) -> dict[str, Any]:
    """The result of check, and `timing`, speed.time_row's, where that is asked for and the row computes right.

    Of a screening, screen.screen's.
    """
    result: dict[str, Any] = {}
    if job.task == VERIFY:
        result = check(job, backend, cache, lambda: answer(step=job.id), lambda: answer(ready=job.id))
    if job.task == TIME or (job.speed and result["verdict"] == "pass"):
        # Here, since a row that is emulated has no speed.
        from moeshapes.verify.speed import time_row

        result["timing"] = time_row(job, backend, cache, lambda: answer(ready=job.id))
    if job.task == SCREEN:
        from moeshapes.verify.screen import screen

        result = screen(job, backend, cache, lambda: answer(ready=job.id))
    return result | {"emulated": backend.emulated, "device": _device(job.device)}


def _adopt(env: Mapping[str, str]) -> None:
    """Makes the environment the job's before AITER is imported; raises where it was imported in another one."""
    from moeshapes.backends.production.environment import adopt

    adopt(env)


def _device(name: str) -> dict[str, Any]:
    """What a job really ran on, as records tell it."""
    if name == "cpu":
        return {"kind": "cpu"}
    gpu = describe(torch.cuda.current_device())
    facts = {"gfx": gpu.gfx, "cu_num": gpu.cu_num, "board": gpu.board, "memory": gpu.memory, "driver": gpu.driver}
    return {"kind": "gpu", **facts}


if __name__ == "__main__":
    main()
