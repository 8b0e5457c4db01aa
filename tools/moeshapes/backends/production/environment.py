"""The environment that AITER is imported and called in: what a use declares, and nothing else that dispatch reads.

AITER reads some variables at import and keeps what others chose until its caches are cleared, so that one process can
serve one environment (contract 3.1, 3.7).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from moeshapes.dispatch import VARIABLES

_READ_BY_DISPATCH = frozenset(
    {
        *VARIABLES,
        "AITER_BYPASS_TUNE_CONFIG",
        "AITER_FLYDSL_FORCE",
        "AITER_FLYDSL_FORCE_REDUCE",
        "AITER_FLYDSL_STAGE2_FP8",
        "AITER_KSPLIT",
        "AITER_LOG_LEVEL",
        "AITER_MOE_A8W4_BYPASS_QUANT",
        "AITER_MOE_SORT_BACKEND",
        "AITER_MXFP4_INTERMEDIATE",
        "AITER_ONLINE_TUNE",
        "AITER_USE_CK_MOE_SORTING",
        "AITER_USE_FLYDSL_MOE_SORTING",
        "AITER_USE_GROUPED_GEMM",
        "AITER_USE_NT",
        "AITER_XBFLOAT16",
        "CU_NUM",
        "GPU_ARCHS",
    }
)
"""What chooses kernels, and the log level: a warning that is not logged cannot be seen.

GPU_ARCHS, which images set to what they were built for, is read where AITER chooses too, its last entry for this GPU's.
"""
_FAMILIES_READ_BY_DISPATCH = ("AITER_CONFIG_", "MXFP4_G2_")


class OtherEnvironmentError(RuntimeError):
    """AITER was imported in another environment than is asked for now: only a fresh process can have it."""


def environment_for(declared: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """A process's environment: the inherited one without what AITER's dispatch reads, and what is declared."""
    kept = {name: value for name, value in inherited.items() if not _is_read_by_dispatch(name)}
    return {**kept, **declared}


def _is_read_by_dispatch(name: str) -> bool:
    return name in _READ_BY_DISPATCH or name.startswith(_FAMILIES_READ_BY_DISPATCH)


def adopt(declared: Mapping[str, str]) -> None:
    """Makes this process's environment the one for what is declared, before AITER is imported.

    Raises OtherEnvironmentError where AITER is imported and anything would change.
    """
    wanted = environment_for(declared, os.environ)
    changed = sorted(name for name in {*os.environ, *wanted} if os.environ.get(name) != wanted.get(name))
    if changed and "aiter" in sys.modules:
        raise OtherEnvironmentError(f"aiter was imported with another {', '.join(changed)}: a fresh process is needed")
    for name in changed:
        os.environ.pop(name, None)
    os.environ.update({name: wanted[name] for name in changed if name in wanted})
