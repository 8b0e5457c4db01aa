"""What compiled code writes to standard error, which no Python handler sees."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_STDERR = 2


@contextmanager
def overheard(lines: list[str]) -> Iterator[None]:
    """Appends the lines that are written meanwhile to `lines`.

    Where standard error is a file, as in a worker, it is read back: nothing is lost if the process dies. Else it goes
    through a file of its own, and is passed on afterwards.
    """
    sys.stderr.flush()
    with _reading_back(lines) if _is_readable_file() else _passing_on(lines):
        yield


def _is_readable_file() -> bool:
    readable = fcntl.fcntl(_STDERR, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    return readable and stat.S_ISREG(os.fstat(_STDERR).st_mode)


@contextmanager
def _reading_back(lines: list[str]) -> Iterator[None]:
    begin = os.fstat(_STDERR).st_size
    try:
        yield
    finally:
        sys.stderr.flush()
        written = os.pread(_STDERR, os.fstat(_STDERR).st_size - begin, begin)
        lines += _decoded(written)


@contextmanager
def _passing_on(lines: list[str]) -> Iterator[None]:
    kept = os.dup(_STDERR)
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), _STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, _STDERR)
            os.close(kept)
            aside.seek(0)
            written = aside.read()
            os.write(_STDERR, written)
            lines += _decoded(written)


def _decoded(written: bytes) -> list[str]:
    return written.decode("utf-8", "replace").splitlines()
