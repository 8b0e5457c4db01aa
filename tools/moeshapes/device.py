"""Devices: their compute units, and the peaks that no kernel exceeds, by architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moeshapes.recipe import Format


@dataclass(frozen=True)
class Peaks:
    """Upper bounds over all boards of an architecture.

    `bandwidth` in bytes a second; `clock` in Hz; `flops_per_cycle` of one compute unit by the format of activations:
    the matrix units run at the rate of the wider operand. `source` says where the numbers stand.
    """

    bandwidth: float
    clock: float
    flops_per_cycle: Mapping[Format, int]
    source: str

    def flops(self, cu_num: int, activations: Format) -> float:
        """Operations a second, infinite for a format that the architecture has no rate for."""
        rate = self.flops_per_cycle.get(activations)
        return rate * cu_num * self.clock if rate else float("inf")


PEAKS = {
    "gfx942": Peaks(
        bandwidth=6.0e12,
        clock=2.1e9,
        flops_per_cycle={Format.BF16: 2048, Format.FP8: 4096, Format.INT8: 4096},
        source="AMD Instinct MI300X (1307 TFLOPS bf16, 2615 fp8, 304 CUs, 2.1 GHz) and MI325X (6 TB/s) data sheets",
    ),
    "gfx950": Peaks(
        bandwidth=8.0e12,
        clock=2.4e9,
        flops_per_cycle={Format.BF16: 4096, Format.FP8: 8192, Format.INT8: 8192, Format.FP4: 16384},
        source="AMD Instinct MI355X data sheet (2.5 PFLOPS bf16, 5 fp8, 10 MXFP4, 256 CUs, 2.4 GHz, 8 TB/s)",
    ),
    "sm_90": Peaks(
        bandwidth=4.9e12,
        clock=1.98e9,
        flops_per_cycle={Format.BF16: 4096, Format.FP8: 8192, Format.INT8: 8192},
        source="NVIDIA H100 SXM (989 TFLOPS bf16, 1979 fp8, 132 SMs at 1.83 GHz) and GH200 (4.9 TB/s) data sheets; "
        "the highest clock that nvidia-smi sets is 1.98 GHz",
    ),
}
"""Architectures without an entry are not judged."""

COMPUTE_UNITS = {
    "gfx942": {"MI300X and MI325X": 304, "MI300A": 228, "MI308X": 80},
    "gfx950": {"MI350X and MI355X": 256, "MI350P": 128},
    "gfx1250": {"the one known": 256},
    "sm_90": {"H100 SXM, H200 and GH200": 132, "H100 PCIe": 114, "H20": 78},
}
"""Whole devices by architecture. Architectures without an entry are not judged."""

_PARTITIONS = (1, 2, 3, 4, 6, 8)
"""Equal ones, of AMD devices."""


def has_aiter(gfx: str) -> bool:
    """Whether AITER runs on the architecture: its kernels are for AMD GPUs."""
    return gfx.startswith("gfx")


def has_device(gfx: str, cu_num: int) -> bool:
    """Whether a device of the architecture, or one of its equal partitions, may have so many compute units."""
    wholes = COMPUTE_UNITS.get(gfx, {}).values()
    partitions = _PARTITIONS if has_aiter(gfx) else (1,)
    return gfx not in COMPUTE_UNITS or any(cu_num * shares == whole for whole in wholes for shares in partitions)
