"""Fixtures that every test module may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def aiter_configs() -> Path:
    """AITER's published fused-MoE tables: data for tests, not part of this repository."""
    named = os.environ.get("MOESHAPES_AITER_CONFIGS")
    directory = Path(named) if named else ROOT.parent / "shared" / "aiter-configs"
    if not directory.is_dir():
        pytest.skip("AITER's tables are not here: set MOESHAPES_AITER_CONFIGS to a directory that holds aiter/configs' CSVs")
    return directory
