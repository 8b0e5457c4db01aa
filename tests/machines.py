"""Machines that are not there, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpus import gpu, local
from moeshapes.doctor.cards import Card
from moeshapes.doctor.machine import Machine
from moeshapes.doctor.torch_facts import TorchFacts
from moeshapes.verify.gpus import NO_GPUS

MI355X = gpu(0, gfx="gfx950", cu_num=256, board="AMD Instinct MI355X", aiter="e4048607a5")


def ready(**changes: Any) -> Machine:
    """A machine with an MI355X on which AITER can run, but for what is changed."""
    whole = Machine(
        driver="6.14.14", kfd=True, kfd_is_open=True, rocm="7.1.0", rocminfo="/opt/rocm/bin/rocminfo",
        hipcc="/opt/rocm/bin/hipcc", cards=(Card("gfx950", 256, "AMD Instinct MI355X"),), local=local(MI355X),
        torch=TorchFacts("2.10.0", "7.1"), triton="3.7.0", aiter="e4048607a5", aiter_folder="/aiter/aiter",
        lookalike="", flydsl="0.3.1",
    )  # fmt: skip
    return replace(whole, **changes)


def bare(**changes: Any) -> Machine:
    """A machine with nothing, but for what is changed."""
    nothing = Machine(
        driver="", kfd=False, kfd_is_open=False, rocm="", rocminfo="", hipcc="", cards=(), local=NO_GPUS,
        torch=TorchFacts(problem="torch is not installed"), triton="", aiter="", aiter_folder="", lookalike="",
        flydsl="",
    )  # fmt: skip
    return replace(nothing, **changes)
