"""Rules about kernels that the AITER which serves does not have yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

from moeshapes.findings import Finding
from moeshapes.kernel_name import KernelName
from moeshapes.recipe import Format
from moeshapes.rule import Rule, Severity
from moeshapes.rules.check import Subject, check

NEEDS_NEWER_AITER = Rule(
    "MOE322", "needs-newer-aiter", Severity.ERROR,
    what="A row names a kernel that came into AITER's main branch after the day that lint is told of.",
    why="The table is newer than the code: the name is unknown there, and the server stops or runs the default path.",
    fix="Serve a newer AITER, or keep the row out of this one's table.",
)  # fmt: skip


@dataclass(frozen=True)
class Feature:
    """Kernels that came into AITER's main branch with one commit."""

    words: str
    holds: Callable[[KernelName], bool]
    since: date
    commit: str


def _family(*names: str) -> Callable[[KernelName], bool]:
    return lambda kernel: kernel.family in names


def _small_a8w4(kernel: KernelName) -> bool:
    return (kernel.family, kernel.tile_m, kernel.a, kernel.w) == ("flydsl_moe1", 16, Format.FP8, Format.FP4)


FEATURES = (
    Feature("FlyDSL's a8w4 stage 1 with tile M 16", _small_a8w4, date(2026, 8, 3), "334fd72ad6"),
    Feature("FlyDSL's stage 2 on sorted rows", _family("moe2_layout"), date(2026, 8, 4), "db24351ee6"),
    Feature("opus's stage 1", _family("opus_moe1"), date(2026, 7, 31), "3a79aec3b7"),
    Feature("mxmoe", _family("mxmoe_g1", "mxmoe_g2"), date(2026, 7, 9), "b2dd7703df"),
    Feature("opus's stage 2", _family("opus_moe2"), date(2026, 7, 1), "7488460ce1"),
    Feature("FlyDSL", _family("flydsl_moe1", "flydsl_moe2"), date(2026, 3, 1), "aadf0a89de"),
)
"""Source: the history of aiter/ops/flydsl and csrc/opus_moe. The first that holds is meant."""


@check
def features(subject: Subject) -> Iterator[Finding]:
    for column, kernel in subject.parsed:
        feature = next((feature for feature in FEATURES if feature.holds(kernel)), None)
        if feature and subject.version.day < feature.since:
            message = (
                f"kernelName{column} `{kernel.render()}` needs {feature.words}, which AITER has since {feature.since}"
            )
            yield subject.finding(NEEDS_NEWER_AITER, f"{message} ({feature.commit})")
