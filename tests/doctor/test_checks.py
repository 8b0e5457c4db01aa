"""Each thing that is missing is found, named and given a way to get it; a machine that has all lacks nothing."""

from __future__ import annotations

from typing import Any

import pytest

from gpus import gpu, local
from machines import bare, ready
from moeshapes.doctor.cards import Card
from moeshapes.doctor.checks import account, backends, checks, why_not_production
from moeshapes.doctor.torch_facts import TorchFacts
from moeshapes.verify.gpus import LocalGpus


def test_a_machine_that_has_all_lacks_nothing() -> None:
    assert why_not_production(ready()) == ()
    assert not [check for check in checks(ready()) if check.wrong or check.remedy]
    assert backends(ready()) == {"emulate": "", "portable": "", "production": ""}
    assert [check.found for check in checks(ready())] == [
        "amdgpu 6.14.14",
        "/dev/kfd",
        "gfx950",
        "7.1.0, /opt/rocm/bin/hipcc",
        "2.10.0, HIP 7.1, sees gfx950/256",
        "3.7.0",
        "e4048607a5, /aiter/aiter",
        "0.3.1",
    ]


def test_a_machine_that_has_nothing_lacks_all_with_a_remedy_each() -> None:
    found = checks(bare())
    assert all(check.wrong and check.remedy and not check.found for check in found)
    names = ["driver", "device", "GPU", "ROCm", "torch", "Triton", "AITER", "FlyDSL"]
    assert [check.name for check in found] == names
    # Rows of other kernels do without FlyDSL.
    assert [check.name for check in why_not_production(bare())] == names[:-1]
    assert backends(bare()) == {
        "emulate": "torch is not installed",
        "portable": "torch is not installed",
        "production": "see driver, device, GPU, ROCm, torch, Triton, AITER above",
    }


@pytest.mark.parametrize(
    ("changes", "name", "wrong", "part"),
    [
        ({"driver": "", "local": local()}, "driver", "no amdgpu driver is loaded", "install AMD's driver"),
        ({"kfd": False}, "device", "there is no /dev/kfd", "--device /dev/kfd"),
        ({"kfd_is_open": False}, "device", "/dev/kfd is not this user's to open", "groups video and render"),
        ({"cards": (Card("sm_90"),)}, "GPU", "no AMD GPU is here, only sm_90", "MI355X"),
        ({"cards": (), "local": local(gpu())}, "GPU", "no AMD GPU is here, only sm_90", "MI355X"),
        ({"rocm": "", "rocminfo": ""}, "ROCm", "ROCm is not installed", "ROCM_PATH"),
        ({"rocminfo": ""}, "ROCm", "ROCm 7.1.0 has no rocminfo, of which AITER asks the GPU", "ROCM_PATH"),
        (
            {"torch": TorchFacts("2.13.0", cuda="13.0")}, "torch",
            "torch 2.13.0 is built for CUDA 13.0, not for ROCm", "rocm/pytorch",
        ),
        ({"torch": TorchFacts("2.9")}, "torch", "torch 2.9 is built for CPUs alone, not for ROCm", "rocm/pytorch"),
        ({"torch": TorchFacts(problem="OSError: libamdhip64.so")}, "torch", "OSError: libamdhip64.so", "rocm/pytorch"),
        ({"local": LocalGpus(problem="torch sees no GPU")}, "torch", "torch sees no GPU", "--device /dev/dri"),
        ({"local": local()}, "torch", "torch sees no GPU", "--device /dev/dri"),
        ({"triton": ""}, "Triton", "Triton is not installed, and AITER imports it", "came with this torch"),
        ({"aiter": ""}, "AITER", "AITER is not installed", "git clone --recursive"),
        (
            {"aiter": "", "lookalike": "/site/aiter/__init__.py"}, "AITER",
            "another package is installed under AITER's name: /site/aiter/__init__.py", "pip uninstall aiter, then git",
        ),
        ({"flydsl": ""}, "FlyDSL", "FlyDSL is not installed: rows that name its kernels fail", "requirements.txt"),
    ],
)  # fmt: skip
def test_each_thing_that_is_missing_is_found(changes: dict[str, Any], name: str, wrong: str, part: str) -> None:
    check = next(check for check in checks(ready(**changes)) if check.name == name)
    assert check.wrong == wrong
    assert part in check.remedy
    blocked = name != "FlyDSL"
    assert (name in [check.name for check in why_not_production(ready(**changes))]) == blocked


def test_torch_that_sees_the_gpu_vouches_for_a_driver_that_sysfs_does_not_show() -> None:
    assert why_not_production(ready(driver="", cards=())) == ()


def test_rocm_without_a_compiler_runs_what_is_built() -> None:
    machine = ready(hipcc="")
    assert why_not_production(machine) == ()
    rocm = next(check for check in checks(machine) if check.name == "ROCm")
    assert rocm.found == "7.1.0, without hipcc: AITER can run only what was built before"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"local": local(gpu()), "torch": TorchFacts("2.13.0", cuda="13.0"), "triton": "3.9.0"}, ""),
        ({"local": local(gpu()), "torch": TorchFacts("2.13.0", cuda="13.0")}, "Triton is not installed"),
        ({"local": LocalGpus(problem="torch sees no GPU"), "torch": TorchFacts("2.13.0")}, "torch sees no GPU"),
        ({"torch": TorchFacts("2.13.0")}, "no GPU is here"),
    ],
)
def test_portable_kernels_need_any_gpu_and_triton(changes: dict[str, Any], reason: str) -> None:
    assert backends(bare(**changes))["portable"] == reason


def test_the_account_tells_what_is_wrong_and_how_to_put_it_right() -> None:
    lines = list(account(why_not_production(ready(triton="", aiter=""))))
    assert lines == [
        "Triton  Triton is not installed, and AITER imports it",
        "          fix: take the Triton that came with this torch for ROCm",
        "AITER   AITER is not installed",
        "          fix: git clone --recursive https://github.com/ROCm/aiter && cd aiter && python3 setup.py develop",
    ]
