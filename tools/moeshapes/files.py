"""Writing files so that a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from errno import EEXIST, EISDIR
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces the file at `path`, making missing folders. Raises OSError and leaves no trace on failure."""
    write_together({path: content})


def write_where_told(path: Path, content: bytes) -> None:
    """As `write_atomically`, but into what a link, a device or a pipe leads to: who says /dev/stdout means it."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(content)
    else:
        write_atomically(path, content)


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Replaces the files, making missing folders. Raises OSError; where one cannot be written, all stay as they are.

    Each new file stands whole in the folder of the old one before any takes its name: a rename across file systems is
    not atomic.
    """
    unfinished = {path: path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp") for path in contents}
    try:
        for path, content in contents.items():
            _write(path, unfinished[path], content)
        for path, whole in unfinished.items():
            os.replace(whole, path)
    except BaseException:
        for leftover in unfinished.values():
            with contextlib.suppress(OSError):
                leftover.unlink()
        raise


def _write(path: Path, unfinished: Path, content: bytes) -> None:
    """Writes what is to become the file at `path`, by whose name errors call it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file() and not path.is_symlink():
        raise OSError(EISDIR if path.is_dir() else EEXIST, "a folder or device stands there", str(path))
    try:
        with unfinished.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
