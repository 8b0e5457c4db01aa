"""A GPU that is not there, for tests of tuning: times and faults of portable kernels are made up, by their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from answers import result
from declared import write_repository
from moeshapes.kernel_name import parse
from moeshapes.verify.job import SCREEN, Job
from small_repository import LIMITED_MODEL, MODEL, PORTABLE_SHAPE

H200 = {"kind": "gpu", "gfx": "sm_90", "cu_num": 132, "board": "NVIDIA H200", "memory": 1 << 37, "driver": "580.1"}
WITHOUT_US = 10.0
SPACE = """\
shared_memory_kib: {other: 99}
accumulators: 128
tiers:
  - tile_m: [16, 32]
    stage1: {tile_n: [32, 64], tile_k: [128], warps: [4], stages: [2, 3], fused: [true, false]}
    stage2: {tile_n: [64, 128], tile_k: [64], warps: [4], stages: [2, 3], mode: [reduce]}
"""
"""Of the tiny shape 8 stage 1 and 4 stage 2 candidates a block_m, one block_m at bucket 1."""


def first(n: int = 64, stages: int = 2, end: str = "", rows: int = 16) -> str:
    return f"triton_moe1_afp4_wfp4_bf16_t{rows}x{n}x128_w4_s{stages}{end}"


def second(n: int = 128, stages: int = 2, rows: int = 16) -> str:
    return f"triton_moe2_afp4_wfp4_bf16_t{rows}x{n}x64_w4_s{stages}_reduce"


def write_tiny(root: Path, uses: int = 1, space: str = SPACE) -> Path:
    """The tiny shape of the portable kernels, with `uses` 2 of another model too, in one table; and a space."""
    shapes, models = {"tiny/tp2-triton": PORTABLE_SHAPE}, {"tiny": MODEL}
    if uses == 2:
        shapes["limited/tp2-triton"] = PORTABLE_SHAPE.replace("model: tiny", "model: limited")
        models["limited"] = LIMITED_MODEL
    write_repository(root, shapes, models)
    (root / "space.yaml").write_text(space, encoding="utf-8")
    return root


def plain_us(kernel: str) -> float:
    """Wider tiles and more stages are faster, fewer rows too."""
    name = parse(kernel)
    assert name is not None
    return 4.0 + (name.tile_m or 0) / 16 - (name.tile_n or 0) / 128 - (name.stages or 0) / 10


@dataclass
class Lab:
    """`us` of a kernel; those in `broken` do not run, those that `kills` end the worker, and those in `wrong` compute
    wrongly under uses that begin with `wrong_use`. `looks_like`: a kernel's µs at a first look, where they differ.
    """

    us: Callable[[str], float] = plain_us
    broken: frozenset[str] = frozenset()
    kills: frozenset[str] = frozenset()
    wrong: frozenset[str] = frozenset()
    wrong_use: str = ""
    looks_like: dict[str, float] = field(default_factory=dict)
    screened: list[tuple[str, str]] = field(default_factory=list)
    verified: list[tuple[str, str, str]] = field(default_factory=list)

    def answer(self, job: Job) -> dict[str, Any] | str:
        return self._screen(job) if job.task == SCREEN else self._verify(job)

    def _screen(self, job: Job) -> dict[str, Any] | str:
        names = [(str(each["kernelName1"]), str(each["kernelName2"])) for each in job.candidates]
        if any(set(pair) & self.kills for pair in names):
            return "the worker was killed by SIGSEGV\nthe log"
        self.screened += names
        return {"us": WITHOUT_US, "candidates": [self._look(pair) for pair in names]}

    def _look(self, pair: tuple[str, str]) -> dict[str, Any]:
        if set(pair) & self.broken:
            return {"error": "OutOfResources: out of resource: shared memory\nmore"}
        return {"us": sum(self.looks_like.get(name, self.us(name)) for name in pair)}

    def _verify(self, job: Job) -> dict[str, Any] | str:
        assert job.launch
        pair = str(job.launch["kernelName1"]), str(job.launch["kernelName2"])
        self.verified.append((*pair, job.use_id))
        fails = bool(set(pair) & self.wrong) and job.use_id.startswith(self.wrong_use)
        found = result(job, "fail" if fails else "pass")
        ratio = sum(map(self.us, pair)) / WITHOUT_US
        verdict = "faster" if ratio < 0.995 else "slower" if ratio > 1.005 else "same"
        against = ["baseline", *(["replaced"] if job.replaced else [])]
        comparisons = [
            {"against": what, "launched": ["k"], "verdict": verdict, "passes": [passed(verdict, ratio)] * 2}
            for what in against
        ]
        speed = {"protocol": 1, "tokens": 8, "calls": 10, "reuse_bytes": 1, "verdict": verdict}
        timed = {**speed, "comparisons": comparisons, "noise": [passed("same", 1.0)] * 2}
        return {**found, "emulated": False, "device": H200, "launched": list(pair), "speed": None if fails else timed}


def passed(verdict: str, ratio: float) -> dict[str, Any]:
    us = {"us": WITHOUT_US * ratio, "other_us": WITHOUT_US, "dropped": 0, "clock_mhz": [1980.0, 1980.0], "seconds": 0.5}
    return {"verdict": verdict, "ratio": ratio, "low": ratio, "high": ratio, "ratios": [ratio] * 6, **us}
