"""What is looked at is found where it is, and a machine without it is looked at as calmly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import standin
from moeshapes.doctor import machine
from moeshapes.doctor.machine import look
from moeshapes.doctor.torch_facts import TorchFacts
from process import environment


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Asks no torch, and finds no programs of the real machine."""
    monkeypatch.setattr(machine, "torch_facts", lambda: TorchFacts("2.13.0"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))


def looked(tmp_path: Path) -> machine.Machine:
    return look(tmp_path / "sys", tmp_path / "dev")


def write(path: Path, text: str = "", mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def test_an_empty_machine_has_nothing(tmp_path: Path) -> None:
    found = looked(tmp_path)
    assert (found.driver, found.rocm, found.rocminfo, found.hipcc) == ("", "", "", "")
    assert (found.kfd, found.kfd_is_open) == (False, False)
    assert found.cards == ()
    assert found.local.gpus == ()
    assert found.torch.version == "2.13.0"


def test_rocm_is_found_where_it_is_said_to_be(tmp_path: Path) -> None:
    write(tmp_path / "rocm" / ".info" / "version", "7.1.0-12\n")
    write(tmp_path / "rocm" / "bin" / "hipcc", "#!/bin/sh\n", 0o755)
    found = looked(tmp_path)
    assert (found.rocm, found.hipcc) == ("7.1.0-12", str(tmp_path / "rocm" / "bin" / "hipcc"))
    write(tmp_path / "bin" / "rocminfo", "#!/bin/sh\n", 0o755)
    assert looked(tmp_path).rocminfo == str(tmp_path / "bin" / "rocminfo")


@pytest.mark.parametrize(("version", "driver"), [("6.14.14\n", "6.14.14"), (None, "of the kernel")])
def test_the_driver_is_the_kernel_module(version: str | None, driver: str, tmp_path: Path) -> None:
    (tmp_path / "sys" / "module" / "amdgpu").mkdir(parents=True)
    if version:
        write(tmp_path / "sys" / "module" / "amdgpu" / "version", version)
    assert looked(tmp_path).driver == driver


def test_a_compute_device_is_found_and_asked_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def answer(command: list[str], **options: Any) -> Any:
        asked.append(command)
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", answer)
    write(tmp_path / "dev" / "kfd")
    found = looked(tmp_path)
    assert (found.kfd, found.kfd_is_open) == (True, True)
    assert found.local.problem.startswith("GPUs could not be listed: ")
    assert len(asked) == 1


def test_aiter_and_another_package_of_its_name_are_told_apart(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with standin.installed():
        found = looked(tmp_path)
    assert found.aiter
    assert Path(found.aiter_folder).name == "aiter"
    assert found.lookalike == ""


def test_another_package_named_aiter_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "site" / "aiter" / "__init__.py")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = looked(tmp_path)
    assert (found.aiter, found.aiter_folder) == ("", "")
    assert found.lookalike == str(tmp_path / "site" / "aiter" / "__init__.py")


def test_looking_imports_neither_torch_nor_aiter() -> None:
    code = (
        "import sys, moeshapes.commands.doctor; from moeshapes.doctor.machine import look; look();"
        "assert not {'torch', 'triton', 'aiter', 'numpy', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())
