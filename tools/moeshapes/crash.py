"""The log of an unexpected error: what a maintainer needs to see, kept off the user's screen."""

from __future__ import annotations

import platform
import sys
import tempfile
import traceback

from moeshapes import __version__


def write_crash_log(error: BaseException) -> str:
    """Writes versions, arguments and the traceback to a new file in the temporary directory; returns its path."""
    report = [
        f"moeshapes {__version__}",
        f"python {platform.python_version()} ({sys.executable})",
        f"platform {platform.platform()}",
        f"arguments {sys.argv[1:]}",
        "",
        *(line.rstrip("\n") for line in traceback.format_exception(error)),
    ]
    with tempfile.NamedTemporaryFile(
        "w", prefix="moeshapes-", suffix=".log", encoding="utf-8", errors="backslashreplace", delete=False
    ) as log:
        log.write("\n".join(report) + "\n")
    return log.name
