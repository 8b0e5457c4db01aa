"""The GPUs of this machine. Run as a program it prints them, so that who plans for them need not import torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from moeshapes.backends.production.installed import aiter_version
from moeshapes.verify.child import answer_of

DEVICE_NODES = ("nvidia[0-9]*", "kfd")
"""What stands in /dev where a driver has found an NVIDIA or an AMD GPU."""
_DRIVERS = ("nvidia", "amdgpu")
_LIST_WITHIN_S = 120.0


@dataclass(frozen=True)
class Gpu:
    """A GPU as torch numbers it. `memory` in bytes; `triton` and `aiter` are empty where they are not installed.

    `aiter` is its commit, or the version of a build that does not tell its commit.
    """

    index: int
    gfx: str
    cu_num: int
    board: str
    memory: int
    driver: str
    triton: str
    aiter: str = ""

    @property
    def kind(self) -> str:
        """What rows are tuned for: `sm_90/132`."""
        return kind_of(self.gfx, self.cu_num)


@dataclass(frozen=True)
class LocalGpus:
    """The GPUs that there are, and why there is none where a driver has found one."""

    gpus: tuple[Gpu, ...] = ()
    problem: str = ""

    def of_kind(self, kind: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.kind == kind), None)


NO_GPUS = LocalGpus()


def kind_of(gfx: str, cu_num: int) -> str:
    return f"{gfx}/{cu_num}"


def local_gpus(dev: Path = Path("/dev")) -> LocalGpus:
    """Asks torch in a process of its own, and nothing where no driver has found a GPU."""
    if not any(True for pattern in DEVICE_NODES for _ in dev.glob(pattern)):
        return NO_GPUS
    answer = answer_of("verify.gpus", _LIST_WITHIN_S, "listing GPUs", "GPUs could not be listed")
    return LocalGpus(problem=answer.problem) if answer.problem else read_listing(answer.line)


def read_listing(line: str) -> LocalGpus:
    """What the program printed."""
    try:
        gpus = tuple(Gpu(**gpu) for gpu in json.loads(line))
    except (ValueError, TypeError):
        return LocalGpus(problem="the listing of GPUs is not understood")
    return LocalGpus(gpus, "" if gpus else "torch sees no GPU")


def describe(index: int) -> Gpu:
    """The GPU of that number. Imports torch."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    return Gpu(
        index=index,
        gfx=gfx_of(properties),
        cu_num=properties.multi_processor_count,
        board=properties.name,
        memory=properties.total_memory,
        driver=driver_version(),
        triton=_triton_version(),
        aiter=aiter_version(),
    )


def gfx_of(properties: Any) -> str:
    """The architecture by its usual name: `gfx950` without feature flags, `sm_90`."""
    name = getattr(properties, "gcnArchName", "")
    if name.startswith("gfx"):
        return str(name).partition(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def driver_version(modules: Path = Path("/sys/module"), names: Iterable[str] = _DRIVERS) -> str:
    """The kernel driver's version, `unknown` where it does not tell."""
    for name in names:
        try:
            return (modules / name / "version").read_text(encoding="utf-8").strip()
        except OSError:
            continue
    return "unknown"


def _triton_version() -> str:
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)


def main() -> None:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    print(json.dumps([asdict(describe(index)) for index in range(count)]))


if __name__ == "__main__":
    main()
