"""Which GPUs there are: asked of torch only where a driver has found one, and any answer understood or told."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpus import gpu, local
from moeshapes.verify import gpus
from moeshapes.verify.gpus import NO_GPUS, driver_version, gfx_of, local_gpus, read_listing
from process import environment


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A /dev with the node of an NVIDIA GPU."""
    (tmp_path / "nvidia0").touch()
    return tmp_path


def answer_with(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Lets the listing be that program's instead."""
    real = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        assert command == [sys.executable, "-m", "moeshapes.verify.gpus"]
        return real([sys.executable, "-c", code], **options)

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize("nodes", [[], ["nvidiactl", "nvidia-uvm", "null"]], ids=["none", "no GPU's"])
def test_without_a_gpus_node_nothing_is_started(
    nodes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in nodes:
        (tmp_path / node).touch()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("started"))
    assert local_gpus(tmp_path) == NO_GPUS


@pytest.mark.parametrize("node", ["nvidia0", "nvidia12", "kfd"])
def test_a_gpus_node_has_torch_asked(node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / node).touch()
    listing = json.dumps([asdict(gpu(0)), asdict(gpu(1))])
    answer_with(monkeypatch, f"print('a library says hello')\nprint({listing!r})")
    assert local_gpus(tmp_path) == local(gpu(0), gpu(1))


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise ImportError('no torch')", "ImportError: no torch"),
        ("import os; os._exit(3)", "listing GPUs ended with status 3"),
        ("print('[]')", "torch sees no GPU"),
        ("print('hello')", "the listing of GPUs is not understood"),
        ("print('[{}]')", "the listing of GPUs is not understood"),
        ("print('[7]')", "the listing of GPUs is not understood"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "the listing of GPUs is not understood"),
        ("", "the listing of GPUs is not understood"),
    ],
)
def test_a_listing_that_fails_says_why(code: str, problem: str, dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, code)
    assert local_gpus(dev) == gpus.LocalGpus(problem=problem)


def test_a_listing_that_never_ends_is_given_up(dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_LIST_WITHIN_S", 0.2)
    answer_with(monkeypatch, "import time; time.sleep(600)")
    assert local_gpus(dev).problem.startswith("GPUs could not be listed: ")


def test_the_program_prints_what_is_read() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "moeshapes.verify.gpus"], capture_output=True, text=True, check=True, env=environment()
    )
    assert read_listing(done.stdout.splitlines()[-1]).problem in ("", "torch sees no GPU")


def test_importing_it_imports_no_torch() -> None:
    code = "import moeshapes.verify.gpus, moeshapes.verify.site, sys; assert not {'torch', 'triton'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


@pytest.mark.parametrize(
    ("properties", "gfx"),
    [
        ({"major": 9, "minor": 0}, "sm_90"),
        ({"major": 12, "minor": 1, "gcnArchName": ""}, "sm_121"),
        ({"major": 9, "minor": 5, "gcnArchName": "gfx950:sramecc+:xnack-"}, "gfx950"),
        ({"major": 9, "minor": 4, "gcnArchName": "gfx942"}, "gfx942"),
        # A build for CUDA may give the board's name there.
        ({"major": 9, "minor": 0, "gcnArchName": "NVIDIA H200"}, "sm_90"),
    ],
)
def test_an_architecture_is_named_as_rows_name_it(properties: dict[str, Any], gfx: str) -> None:
    assert gfx_of(SimpleNamespace(**properties)) == gfx


def test_the_drivers_version_is_the_kernel_modules(tmp_path: Path) -> None:
    assert driver_version(tmp_path) == "unknown"
    (tmp_path / "amdgpu").mkdir()
    assert driver_version(tmp_path) == "unknown"
    (tmp_path / "amdgpu" / "version").write_text("6.12.12\n")
    assert driver_version(tmp_path) == "6.12.12"


def test_gpus_are_found_by_kind() -> None:
    here = local(gpu(0, cu_num=114), gpu(1), gpu(2))
    assert here.of_kind("sm_90/132") == gpu(1)
    assert here.of_kind("gfx950/256") is None


@pytest.mark.gpu
def test_this_machines_gpus_are_listed() -> None:
    here = local_gpus()
    assert here.problem == ""
    assert [found.index for found in here.gpus] == list(range(len(here.gpus)))
    assert all(found.memory > 1 << 30 and found.cu_num > 0 and found.triton for found in here.gpus)


def test_a_gpu_is_described_by_what_torch_and_the_driver_say(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(name="a board", major=9, minor=0, multi_processor_count=132, total_memory=150 << 30)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: properties)
    monkeypatch.setattr(gpus, "driver_version", lambda: "570.1")
    monkeypatch.setattr(gpus, "_triton_version", lambda: "3.9.0")
    assert gpus.describe(1) == gpu(1)
