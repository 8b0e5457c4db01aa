"""Torch is asked in a process of its own, and any answer is understood or told."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

from moeshapes.doctor import torch_facts as module
from moeshapes.doctor.torch_facts import TorchFacts, torch_facts


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: object())


def answer_with(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    real = subprocess.run

    def run(command: list[str], **options: Any) -> Any:
        assert command == [sys.executable, "-m", "moeshapes.doctor.torch_facts"]
        return real([sys.executable, "-c", code], **options)

    monkeypatch.setattr(subprocess, "run", run)


def test_where_there_is_none_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("started"))
    assert torch_facts() == TorchFacts(problem="torch is not installed")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("code", "facts"),
    [
        (
            'print(\'a library says hello\'); print(\'{"version": "2.10.0", "hip": "7.1", "cuda": ""}\')',
            TorchFacts("2.10.0", "7.1"),
        ),
        ("raise OSError('libamdhip64.so: cannot open')", TorchFacts(problem="OSError: libamdhip64.so: cannot open")),
        ("import os; os._exit(3)", TorchFacts(problem="importing torch ended with status 3")),
        ("print('hello')", TorchFacts(problem="what torch printed is not understood")),
        ("print('[7]')", TorchFacts(problem="what torch printed is not understood")),
        ("print('{\"spin\": 2}')", TorchFacts(problem="what torch printed is not understood")),
        ("", TorchFacts(problem="what torch printed is not understood")),
    ],
)
def test_an_answer_is_understood_or_told(code: str, facts: TorchFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, code)
    assert torch_facts() == facts


@pytest.mark.usefixtures("installed")
def test_a_torch_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TELL_WITHIN_S", 0.2)
    answer_with(monkeypatch, "import time; time.sleep(600)")
    assert torch_facts().problem.startswith("torch could not be asked: ")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_installed_torch_tells_its_version() -> None:
    found = torch_facts()
    assert found.problem == ""
    assert found.version
