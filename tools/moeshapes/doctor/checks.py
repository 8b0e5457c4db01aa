"""What AITER's kernels need to run here: what was found of it, what is wrong with it, and how to put it right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from moeshapes.device import has_aiter
from moeshapes.doctor.machine import Machine
from moeshapes.verify.site import EMULATE, PORTABLE, PRODUCTION

_DRIVER_GUIDE = "https://rocm.docs.amd.com/projects/install-on-linux"
_CONTAINER = "docker run --device /dev/kfd --device /dev/dri --group-add video --group-add render …"
_ROCM_TORCH = "use a ROCm container that has PyTorch, such as rocm/pytorch, or the ROCm build that pytorch.org names"
_AITER = "git clone --recursive https://github.com/ROCm/aiter && cd aiter && python3 setup.py develop"
_WIDTH = 8
"""Of the column of names."""


@dataclass(frozen=True)
class Check:
    """`found` is what there is, `wrong` why that will not do, empty where it does; `remedy` what to do about it.

    `blocks`: AITER's kernels cannot be run at all while it is wrong.
    """

    name: str
    found: str
    wrong: str = ""
    remedy: str = ""
    blocks: bool = True


def checks(machine: Machine) -> tuple[Check, ...]:
    """All that the production backend needs, in the order in which it is put right."""
    return (
        _driver(machine),
        _device(machine),
        _gpu(machine),
        _rocm(machine),
        _torch(machine),
        _triton(machine),
        _aiter(machine),
        _flydsl(machine),
    )


def why_not_production(machine: Machine) -> tuple[Check, ...]:
    """What keeps AITER's kernels from being run here: nothing where they can be."""
    return tuple(check for check in checks(machine) if check.wrong and check.blocks)


def account(found: Iterable[Check]) -> Iterator[str]:
    """Lines for people: what was found or is wrong, and below what is wrong how to put it right."""
    for check in found:
        yield f"{check.name:<{_WIDTH}}{check.wrong or check.found}"
        if check.wrong:
            yield f"{'':<{_WIDTH}}  fix: {check.remedy}"


def backends(machine: Machine) -> dict[str, str]:
    """Why each backend cannot run here; empty for those that can."""
    torch = machine.torch.problem
    portable = torch or machine.local.problem or ("" if machine.local.gpus else "no GPU is here")
    missing = [check.name for check in why_not_production(machine)]
    return {
        EMULATE: torch,
        PORTABLE: portable or ("" if machine.triton else "Triton is not installed"),
        PRODUCTION: f"see {', '.join(missing)} above" if missing else "",
    }


def _check(name: str, found: str, wrong: str, remedy: str, blocks: bool = True) -> Check:
    return Check(name, "", wrong, remedy, blocks) if wrong else Check(name, found)


def _sees_amd(machine: Machine) -> bool:
    """Whether torch sees a GPU of AMD's: then its driver is there, whether or not sysfs tells."""
    return any(has_aiter(gpu.gfx) for gpu in machine.local.gpus)


def _driver(machine: Machine) -> Check:
    remedy = f"install AMD's driver ({_DRIVER_GUIDE}), or use a machine that has an Instinct GPU"
    wrong = "" if machine.driver or _sees_amd(machine) else "no amdgpu driver is loaded"
    return _check("driver", f"amdgpu {machine.driver or 'of unknown version'}", wrong, remedy)


def _device(machine: Machine) -> Check:
    remedy = f"in a container: {_CONTAINER}"
    if machine.kfd and not machine.kfd_is_open:
        remedy = f"add this user to the groups video and render; {remedy}"
        return _check("device", "", "/dev/kfd is not this user's to open", remedy)
    return _check("device", "/dev/kfd", "" if machine.kfd else "there is no /dev/kfd", remedy)


def _gpu(machine: Machine) -> Check:
    """One that AITER has kernels for, as the driver tells, or as torch does where the driver does not."""
    gfxs = [card.gfx for card in machine.cards] or [gpu.gfx for gpu in machine.local.gpus]
    fitting = ", ".join(dict.fromkeys(filter(has_aiter, gfxs)))
    there = f", only {', '.join(dict.fromkeys(gfxs))}" if gfxs else ""
    remedy = "use a machine with an MI300X, MI325X (gfx942), MI350X or MI355X (gfx950)"
    return _check("GPU", fitting, "" if fitting else f"no AMD GPU is here{there}", remedy)


def _rocm(machine: Machine) -> Check:
    remedy = f"use a ROCm container, or install ROCm ({_DRIVER_GUIDE}) and set ROCM_PATH where it is not /opt/rocm"
    lacking = f"ROCm {machine.rocm} has no rocminfo, of which AITER asks the GPU" if machine.rocm else ""
    wrong = "" if machine.rocminfo else lacking or "ROCm is not installed"
    compiler = machine.hipcc or "without hipcc: AITER can run only what was built before"
    return _check("ROCm", f"{machine.rocm or 'of unknown version'}, {compiler}", wrong, remedy)


def _torch(machine: Machine) -> Check:
    facts = machine.torch
    if facts.problem:
        return _check("torch", "", facts.problem, _ROCM_TORCH)
    if not facts.hip:
        built = f"CUDA {facts.cuda}" if facts.cuda else "CPUs alone"
        return _check("torch", "", f"torch {facts.version} is built for {built}, not for ROCm", _ROCM_TORCH)
    unseen = "" if _sees_amd(machine) else machine.local.problem or "torch sees no GPU"
    kinds = ", ".join(dict.fromkeys(gpu.kind for gpu in machine.local.gpus))
    return _check("torch", f"{facts.version}, HIP {facts.hip}, sees {kinds}", unseen, f"in a container: {_CONTAINER}")


def _triton(machine: Machine) -> Check:
    wrong = "" if machine.triton else "Triton is not installed, and AITER imports it"
    return _check("Triton", machine.triton, wrong, "take the Triton that came with this torch for ROCm")


def _aiter(machine: Machine) -> Check:
    other = f"another package is installed under AITER's name: {machine.lookalike}" if machine.lookalike else ""
    wrong = "" if machine.aiter else other or "AITER is not installed"
    remedy = f"pip uninstall aiter, then {_AITER}" if other else _AITER
    return _check("AITER", f"{machine.aiter}, {machine.aiter_folder}", wrong, remedy)


def _flydsl(machine: Machine) -> Check:
    """Rows of CK's, opus's and assembly kernels do without."""
    wrong = "" if machine.flydsl else "FlyDSL is not installed: rows that name its kernels fail"
    remedy = "pip install -r requirements.txt in AITER's checkout"
    return _check("FlyDSL", machine.flydsl, wrong, remedy, blocks=False)
