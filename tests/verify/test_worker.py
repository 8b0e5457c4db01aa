"""A worker answers each line it is given, in JSON and nothing else, whatever happens in between."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from jobs import job, problem
from moeshapes.backends.emulate import EmulateBackend, EmulatedLayer
from moeshapes.verify.job import Job
from moeshapes.verify.pool import Pool, default_command
from moeshapes.verify.worker import load_backend, serve
from process import environment


def answers(jobs: Sequence[Job], backend: type[EmulateBackend] = EmulateBackend) -> list[dict[str, Any]]:
    given = io.StringIO("".join(each.to_json() + "\n" for each in jobs))
    said = io.StringIO()
    serve(given, said, lambda name: backend() if name == "emulate" else load_backend(name))
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_a_job_survives_its_journey() -> None:
    sent = job(what=problem("a4w4", bias=True), counts=(8, 5, 6), launch={"block_m": 16, "kernelName1": "é"})
    assert Job.from_json(sent.to_json()) == sent
    assert "\n" not in sent.to_json()
    assert sent.to_json().isascii()


def test_jobs_that_share_weights_have_one_layer_key() -> None:
    key = job("a").layer_key
    assert job("b", token=8, counts=(8,), launch={"block_m": 16}).layer_key == key
    others = [job("c", seed=9), job("d", problem("a4w4")), job("e", device="cuda"), job("f", max_elements=5)]
    assert len({key, *(other.layer_key for other in others)}) == 5


def test_it_gives_signs_of_life_and_then_the_result() -> None:
    ready, *steps, last = answers([job("a")])
    assert ready == {"ready": "a"}
    assert steps == [{"step": "a"}] * 11
    assert last["job"] == "a"
    assert last["result"]["verdict"] == "pass"


def test_an_exception_is_the_jobs_error_and_the_next_job_is_verified(capsys: pytest.CaptureFixture[str]) -> None:
    said = answers([job("bad", problem(inter_dim=48)), job("unknown", backend="nope"), job("good")])
    errors = {each["job"]: each["error"] for each in said if "error" in each}
    assert errors == {
        "bad": "ValueError: inter_dim = 48 is no multiple of the scale block, 32",
        "unknown": "ValueError: no backend is called nope",
    }
    assert said[-1]["result"]["verdict"] == "pass"
    assert "Traceback" in capsys.readouterr().err


def test_lack_of_memory_is_the_jobs_error() -> None:
    class Greedy(EmulateBackend):
        def prepare(self, layer: Any) -> EmulatedLayer:
            raise MemoryError

    assert [each["error"] for each in answers([job("a"), job("b")], Greedy)] == ["MemoryError: "] * 2


NOISY = """
import os, sys
import moeshapes.backends.emulate as emulate
honest = emulate.EmulatedLayer.__init__
def noisy(self, layer):
    print('{"job": "a", "result": {}}')
    sys.stdout.flush()
    os.write(1, b"from C\\n")
    os.system("echo from a child")
    honest(self, layer)
emulate.EmulatedLayer.__init__ = noisy
sys.argv = ["worker", "--threads", "1"]
from moeshapes.verify.worker import main
main()
"""


def test_what_libraries_print_is_no_answer() -> None:
    (outcome,) = Pool(1, 1, 60.0, lambda threads, gpu: [sys.executable, "-c", NOISY]).run([job("a")])
    assert outcome.error == ""
    assert outcome.result
    assert outcome.result["verdict"] == "pass"


def test_what_libraries_print_is_logged() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NOISY],
        input=job("a").to_json() + "\n",
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    assert all(set(json.loads(line)) <= {"ready", "step", "job", "result"} for line in done.stdout.splitlines())
    assert "from C\nfrom a child\n" in done.stderr


def test_a_worker_takes_as_many_threads_as_it_is_given() -> None:
    assert default_command(3, None)[-2:] == ["--threads", "3"]
    assert default_command(3, 1)[-4:] == ["--threads", "3", "--gpu", "1"]


def test_a_worker_imports_no_yaml_schema_or_command_line() -> None:
    code = "import moeshapes.verify.worker, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert not set(done.stdout.split()) & {"yaml", "jsonschema", "click", "pandas", "tabulate"}
