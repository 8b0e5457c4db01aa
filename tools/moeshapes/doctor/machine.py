"""Everything that is looked at on a machine, gathered once."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from moeshapes.backends.production.installed import PACKAGE, aiter_version, package_folder
from moeshapes.doctor.cards import SYS, Card, cards
from moeshapes.doctor.torch_facts import TorchFacts, torch_facts
from moeshapes.verify.gpus import LocalGpus, local_gpus

_ROCM = Path("/opt/rocm")
_TRITONS = ("triton", "pytorch-triton-rocm", "pytorch-triton")
"""The distributions that bring a module named triton."""
_AMD_DRIVER = "amdgpu"


@dataclass(frozen=True)
class Machine:
    """Versions and paths as text, empty where there is none. `kfd` says whether AMD's compute device is there, and
    `kfd_is_open` whether this user may use it. `lookalike` is where another package named aiter is.
    """

    driver: str
    kfd: bool
    kfd_is_open: bool
    rocm: str
    rocminfo: str
    hipcc: str
    cards: tuple[Card, ...]
    local: LocalGpus
    torch: TorchFacts
    triton: str
    aiter: str
    aiter_folder: str
    lookalike: str
    flydsl: str


def look(sys: Path = SYS, dev: Path = Path("/dev")) -> Machine:
    """This machine. Starts processes that import torch, and imports none of it."""
    rocm = Path(os.environ.get("ROCM_PATH") or _ROCM)
    folder = package_folder()
    return Machine(
        driver=_driver(sys / "module" / _AMD_DRIVER),
        kfd=(dev / "kfd").exists(),
        kfd_is_open=os.access(dev / "kfd", os.R_OK | os.W_OK),
        rocm=_rocm_version(rocm),
        rocminfo=_program("rocminfo", rocm),
        hipcc=_program("hipcc", rocm),
        cards=cards(sys),
        local=local_gpus(dev),
        torch=torch_facts(),
        triton=next(filter(None, map(_version_of, _TRITONS)), "") if find_spec("triton") else "",
        aiter=aiter_version(),
        aiter_folder=str(folder or ""),
        lookalike="" if folder else _place_of(PACKAGE),
        flydsl=_version_of("flydsl") if find_spec("flydsl") else "",
    )


def _driver(module: Path) -> str:
    """The driver's version; drivers that come with the kernel have none of their own."""
    try:
        return (module / "version").read_text(encoding="utf-8").strip()
    except OSError:
        return "of the kernel" if module.is_dir() else ""


def _program(name: str, rocm: Path) -> str:
    return shutil.which(name) or shutil.which(name, path=str(rocm / "bin")) or ""


def _rocm_version(rocm: Path) -> str:
    try:
        return (rocm / ".info" / "version").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _version_of(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _place_of(package: str) -> str:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return ""
    return str(spec.origin or next(iter(spec.submodule_search_locations or []), "")) if spec else ""
