"""Large inputs: cells of ten megabytes, deep nesting, a million rows.

`python -m fuzz.large TARGET` says how long each takes, and in how much memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz.bench import Workbench
from fuzz.corpus import inputs
from fuzz.targets import TARGETS
from moeshapes.log_line import MARK

CELL = b"x" * (10 << 20)
_ROWS = 1_000_000
_DEEP = 500_000


def large_inputs(target: str) -> Iterator[tuple[str, bytes]]:
    """Of each kind those that a file of the target's form may have, with a name."""
    seed = next(iter(inputs(target).values()))
    yield "nothing", b""
    yield "cell", seed.replace(b"8", CELL, 1)
    yield "spaces", b" " * len(CELL) + seed
    yield "escapes", b"\x1b[31m" * (len(CELL) // 5)
    yield "lists", b"[" * _DEEP
    yield "mappings", b'{"a":' * _DEEP
    yield "indented", b"- " * _DEEP
    yield "commas", b"," * _DEEP
    yield "lines", seed + b"\n" * _ROWS
    yield "rows", seed + seed.rstrip(b"\n").rpartition(b"\n")[2][:20] * _ROWS
    yield "short rows", seed + b"1,1\n{}\n" * (_ROWS // 2)
    yield "marks", (MARK.encode() + b"1stage ") * (len(CELL) // len(MARK))
    yield "marked lines", (MARK.encode() + b"\n") * (_ROWS // 5)
    yield "keys", json.dumps({f"key{number}": number for number in range(_ROWS // 10)}).encode()


def main(target: str) -> dict[str, float]:
    """CPU seconds of each, and the peak of memory in MiB."""
    took = {}
    with TemporaryDirectory() as folder:
        bench = Workbench(Path(folder))
        for name, data in large_inputs(target):
            began = time.process_time()
            TARGETS[target](data, bench)
            took[name] = round(time.process_time() - began, 2)
    return {**took, "MiB": _peak_mib()}


def _peak_mib() -> int:
    """Of this program alone: `ru_maxrss` is that of the process which started it, where that held more."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) >> 10


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
