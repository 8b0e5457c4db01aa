"""Writing files so that a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces the file at `path`, making missing folders. Raises OSError and leaves no trace on failure.

    The new file stands in the same folder before it takes the name: a rename across file systems is not atomic.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
        raise
