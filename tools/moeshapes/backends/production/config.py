"""The table that AITER reads while an arm is active: one file named by AITER_CONFIG_FMOE, which bypasses its merge."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moeshapes.files import write_atomically

VARIABLE = "AITER_CONFIG_FMOE"


@contextmanager
def served(table: str) -> Iterator[Path]:
    """AITER reads `table`, a CSV's text, and nothing else: no table of its own, no merged one from its cache.

    A single path is taken verbatim (contract 1.2). The file is in a folder of its own, since AITER looks for other
    tables beside it, and is gone afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="moeshapes-") as folder:
        path = Path(folder) / "tuned_fmoe.csv"
        write_atomically(path, table.encode())
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = str(path)
        try:
            yield path
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before
