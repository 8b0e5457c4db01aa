"""A stand-in for AITER on a CPU: installs it in place of the real package. README.md says what it has."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
_CU_NUM = {"gfx942": "304", "gfx950": "256"}


def environment(
    gfx: str = "gfx950",
    cu_num: int | None = None,
    root: Path | None = None,
    merge_into: Path | None = None,
    lies: Sequence[str] = (),
    flydsl: bool = True,
    lenient: bool = False,
    env: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The whole environment of a child process that shall find the stand-in as `aiter`."""
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), *([path] if path else [])]),
        **_settings(gfx, cu_num, root, merge_into, lies, flydsl, lenient),
        **(env or {}),
    }


def _settings(
    gfx: str,
    cu_num: int | None,
    root: Path | None,
    merge_into: Path | None,
    lies: Sequence[str],
    flydsl: bool,
    lenient: bool,
) -> dict[str, str]:
    return {
        "AITER_STANDIN_GFX": gfx,
        "AITER_STANDIN_CU_NUM": str(cu_num) if cu_num else _CU_NUM.get(gfx, "256"),
        "AITER_STANDIN_ROOT": str(root or ""),
        "AITER_STANDIN_MERGE": str(merge_into or ""),
        "AITER_STANDIN_LIES": ",".join(lies),
        "AITER_STANDIN_FLYDSL": str(int(flydsl)),
        "AITER_STANDIN_LENIENT": str(int(lenient)),
    }


@contextmanager
def installed(
    gfx: str = "gfx950",
    cu_num: int | None = None,
    root: Path | None = None,
    merge_into: Path | None = None,
    lies: Sequence[str] = (),
    flydsl: bool = True,
    lenient: bool = False,
    env: Mapping[str, str] | None = None,
) -> Iterator[ModuleType]:
    """`import aiter` gives the stand-in, freshly imported under this environment. Afterwards all is as before."""
    variables = {**_settings(gfx, cu_num, root, merge_into, lies, flydsl, lenient), **(env or {})}
    before = dict(os.environ)
    aside = _put_aside()
    logger = logging.getLogger("aiter")
    handlers, propagates, level = list(logger.handlers), logger.propagate, logger.level
    os.environ.update(variables)
    sys.path.insert(0, str(HERE))
    try:
        yield import_module("aiter")
    finally:
        sys.path.remove(str(HERE))
        _put_aside()
        sys.modules.update(aside)
        logger.handlers[:], logger.propagate = handlers, propagates
        logger.setLevel(level)
        os.environ.clear()
        os.environ.update(before)


def _put_aside() -> dict[str, ModuleType]:
    found = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "aiter"}
    for name in found:
        del sys.modules[name]
    return found
