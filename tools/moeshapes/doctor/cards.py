"""The GPUs of this machine as its kernel drivers tell of them, without torch: board, partition, power limit, clocks."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SYS = Path("/sys")
_NODES = "class/kfd/kfd/topology/nodes"
_CLOCK = re.compile(r"^\s*\d+:\s*(?P<mhz>\d+)\s*mhz\s*(?P<now>\*?)\s*$", re.IGNORECASE | re.MULTILINE)
_QUERY = (
    "name",
    "compute_cap",
    "memory.total",
    "mig.mode.current",
    "power.limit",
    "clocks.current.sm",
    "clocks.max.sm",
)
_ASK_WITHIN_S = 30.0


@dataclass(frozen=True)
class Card:
    """A GPU, or a partition of one. `memory` in bytes, `power_limit` in watts, clocks in MHz; None, 0 or empty where
    the driver does not tell.

    `partition` is how the device is divided: `SPX/NPS1` is one whole.
    """

    gfx: str
    cu_num: int = 0
    board: str = ""
    memory: int = 0
    partition: str = ""
    power_limit: float | None = None
    clock: int | None = None
    max_clock: int | None = None

    def __str__(self) -> str:
        """`AMD Instinct MI355X: gfx950, 256 CUs, 288 GiB, partition SPX/NPS1, limit 1400 W, 132 of 2400 MHz`."""
        clocks = f"{self.clock or '?'} of {self.max_clock} MHz" if self.max_clock else ""
        facts = (
            self.gfx,
            f"{self.cu_num} CUs" if self.cu_num else "",
            f"{self.memory / (1 << 30):.0f} GiB" if self.memory else "",
            f"partition {self.partition}" if self.partition else "",
            f"limit {self.power_limit:.0f} W" if self.power_limit else "",
            clocks,
        )
        return f"{self.board or 'a board that has no name here'}: {', '.join(filter(None, facts))}"


def cards(sys: Path = SYS) -> tuple[Card, ...]:
    """AMD's, which sysfs tells of, then NVIDIA's, of which nvidia-smi tells."""
    return (*_amd(sys), *_nvidia())


def _amd(sys: Path) -> Iterator[Card]:
    """The nodes of the compute driver's topology that have SIMD units: others are CPUs, or GPUs of other containers."""
    nodes = [node for node in (sys / _NODES).glob("*") if node.name.isdecimal()]
    for node in sorted(nodes, key=lambda node: int(node.name)):
        facts = dict(_numbers(_text(node / "properties")))
        if facts.get("simd_count") and facts.get("gfx_target_version"):
            yield _amd_card(facts, sys / "class" / "drm" / f"renderD{facts.get('drm_render_minor', 0)}" / "device")


def _amd_card(facts: Mapping[str, int], device: Path) -> Card:
    version = facts["gfx_target_version"]
    clocks = list(_CLOCK.finditer(_text(device / "pp_dpm_sclk")))
    partitions = (_text(device / f"current_{kind}_partition") for kind in ("compute", "memory"))
    limits = [_number(_text(path)) for path in sorted(device.glob("hwmon/hwmon*/power1_cap"))]
    return Card(
        gfx=f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}",
        cu_num=facts["simd_count"] // max(facts.get("simd_per_cu", 1), 1),
        board=_text(device / "product_name"),
        memory=_number(_text(device / "mem_info_vram_total")) or 0,
        partition="/".join(filter(None, partitions)),
        power_limit=next((microwatts / 1e6 for microwatts in limits if microwatts), None),
        clock=next((int(clock["mhz"]) for clock in clocks if clock["now"]), None),
        max_clock=max((int(clock["mhz"]) for clock in clocks), default=None) or facts.get("max_engine_clk_fcompute"),
    )


def _numbers(properties: str) -> Iterator[tuple[str, int]]:
    for line in properties.splitlines():
        name, _, value = line.partition(" ")
        if value.isdecimal():
            yield name, int(value)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _nvidia() -> Iterator[Card]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return
    command = [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=True, timeout=_ASK_WITHIN_S
        )
    except (OSError, subprocess.SubprocessError):
        return
    for cells in csv.reader(done.stdout.splitlines(), skipinitialspace=True):
        if len(cells) == len(_QUERY):
            yield _nvidia_card(*cells)


def _nvidia_card(board: str, capability: str, mib: str, mig: str, limit: str, clock: str, max_clock: str) -> Card:
    return Card(
        gfx=f"sm_{capability.replace('.', '')}",
        board=board,
        memory=(_number(mib) or 0) << 20,
        partition="MIG" if mig == "Enabled" else "",
        power_limit=float(limit) if re.fullmatch(r"\d+(\.\d+)?", limit) else None,
        clock=_number(clock),
        max_clock=_number(max_clock),
    )
