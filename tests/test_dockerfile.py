"""The Dockerfile: what its instructions rest on is there, and it ends in the verification."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def instructions() -> list[tuple[str, str]]:
    """Each instruction with its arguments, continued lines joined, comments left out."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in TEXT.splitlines() if not line.startswith("#")))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in joined.splitlines() if line.strip()]


def test_it_ends_in_the_verification_with_the_images_own_python() -> None:
    name, arguments = instructions()[-1]
    assert name == "CMD"
    assert json.loads(arguments) == ["make", "verify", "BACKEND=production", "VENV="]


def test_what_it_copies_is_there() -> None:
    for name, arguments in instructions():
        if name == "COPY":
            assert (ROOT / arguments.split()[0]).exists()


def test_the_images_torch_stays() -> None:
    (installed,) = [a for name, a in instructions() if name == "RUN" and "constraints.txt" in a]
    assert not {"torch", "triton", "numpy"} & set(installed.split())


def test_it_installs_what_the_verification_needs() -> None:
    needed = re.search(r"^verify: NEEDS = (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert needed
    of_image = {"torch", "numpy"}
    assert set(needed[1].split()) - of_image <= set(TEXT.split())


@pytest.mark.parametrize("name", ["BASE", "AITER_COMMIT", "GPU_ARCHS"])
def test_what_differs_from_machine_to_machine_is_an_argument(name: str) -> None:
    (value,) = [a for instruction, a in instructions() if instruction == "ARG" and a.startswith(f"{name}=")]
    assert not value.endswith(":latest")


def test_the_workflow_runs_in_the_same_image() -> None:
    base = re.search(r"^ARG BASE=(\S+)$", TEXT, re.MULTILINE)
    assert base
    assert f"'{base[1]}'" in (ROOT / ".github" / "workflows" / "verify-gpu.yml").read_text(encoding="utf-8")
