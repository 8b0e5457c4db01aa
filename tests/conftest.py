"""Fixtures that every test module may use."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# For torch, here and in the processes that tests start: small tensors gain nothing from more threads, and lose much to
# them where each core has a test already.
os.environ["OMP_NUM_THREADS"] = "1"

NEEDS_VERIFY_EXTRA = (
    "acceptance/test_select.py",
    "acceptance/test_verify.py",
    "backends",
    "sensitivity",
    "standin",
    "test_activation.py",
    "test_oracle.py",
    "test_products.py",
    "test_quant.py",
    "test_workload.py",
    "verify",
)
"""Test modules and folders that import torch: not collected from a base install, and said so."""

NEEDS_REPORT_EXTRA = ("acceptance/test_report.py", "fuzz", "report")
"""Those that import jinja2."""

NEEDS_SAFETENSORS = ("acceptance/test_weights.py", "checkpoint")
"""Those that write checkpoints."""

_NEEDED = {"torch": NEEDS_VERIFY_EXTRA, "jinja2": NEEDS_REPORT_EXTRA, "safetensors": NEEDS_SAFETENSORS}
_MISSING = {module: paths for module, paths in _NEEDED.items() if not importlib.util.find_spec(module)}
collect_ignore = [path for paths in _MISSING.values() for path in paths]

# A shared or slow machine is not a failing one.
settings.register_profile("moeshapes", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("moeshapes")


def pytest_report_header() -> str:
    missing = [f"without {module}, not collected: {', '.join(paths)}" for module, paths in _MISSING.items()]
    return "; ".join(missing) or f"found: {', '.join(_NEEDED)}"


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
        missing = (
            "AITER's tables are not here: set MOESHAPES_AITER_CONFIGS to a directory that holds aiter/configs' CSVs"
        )
        if os.environ.get("MOESHAPES_REQUIRE_AITER_CONFIGS"):
            pytest.fail(missing)
        pytest.skip(missing)
    return directory


@pytest.fixture(scope="session")
def can_install(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where pip cannot reach a registry."""
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", "click"]
    done = subprocess.run(probe, cwd=tmp_path_factory.mktemp("probe"), capture_output=True, check=False)
    if done.returncode:
        pytest.skip("pip cannot reach a registry")
