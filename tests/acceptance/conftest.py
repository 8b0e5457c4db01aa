"""What all tests of commands share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker a verification, unless it has a process of its own: to import torch takes longer than the jobs."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
