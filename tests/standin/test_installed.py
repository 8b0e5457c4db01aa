"""Installing the stand-in, here and in a child process, and nothing left behind."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

import standin

REAL = importlib.util.find_spec("aiter")


def test_nothing_is_left_behind() -> None:
    logger = logging.getLogger("aiter")
    before = dict(os.environ), list(sys.path), list(logger.handlers), logger.propagate
    with standin.installed(env={"AITER_KSPLIT": "3"}) as aiter:
        assert Path(str(aiter.__file__)).is_relative_to(Path(__file__).parent)
        assert os.environ["AITER_KSPLIT"] == "3"
    assert (dict(os.environ), list(sys.path), list(logger.handlers), logger.propagate) == before
    assert not [name for name in sys.modules if name.split(".")[0] == "aiter"]
    assert importlib.util.find_spec("aiter") == REAL


def test_each_is_imported_afresh() -> None:
    with standin.installed() as first:
        pass
    with standin.installed() as second:
        assert second is not first


@pytest.mark.parametrize(("gfx", "cu_num", "fp8"), [("gfx950", 256, "e4m3fn"), ("gfx942", 304, "e4m3fnuz")])
def test_devices(gfx: str, cu_num: int, fp8: str) -> None:
    with standin.installed(gfx=gfx) as aiter:
        chip = import_module("aiter.jit.utils.chip_info")
        assert (chip.get_gfx(), chip.get_gfx_runtime(), chip.get_cu_num()) == (gfx, gfx, cu_num)
        assert str(aiter.dtypes.fp8) == f"torch.float8_{fp8}"
        assert aiter.dtypes.d_dtypes["fp8"] is aiter.dtypes.fp8


def test_another_device_while_it_is_installed() -> None:
    with standin.installed() as aiter:
        aiter.standin.pretend("gfx942")
        chip = import_module("aiter.jit.utils.chip_info")
        assert (chip.get_gfx(), chip.get_gfx_runtime(), chip.get_cu_num()) == ("gfx942", "gfx942", 304)
        assert aiter.dtypes.fp8 is torch.float8_e4m3fnuz


def test_what_aiters_own_variables_override() -> None:
    with standin.installed(env={"CU_NUM": "80", "GPU_ARCHS": "gfx950;gfx942"}):
        chip = import_module("aiter.jit.utils.chip_info")
        assert (chip.get_gfx(), chip.get_gfx_runtime(), chip.get_cu_num()) == ("gfx942", "gfx950", 80)


def test_a_child_process() -> None:
    code = "import aiter; from aiter.jit.utils.chip_info import get_gfx; print(get_gfx(), aiter.standin.__name__)"
    environment = standin.environment(gfx="gfx942", lies=("label",), env={"PYTHONSAFEPATH": "1"})
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gfx942", "aiter.standin"]


def test_a_lie_that_does_not_exist() -> None:
    with pytest.raises(AssertionError, match="no such lie: white"), standin.installed(lies=("white",)):
        pass
