"""Fuzzes the parsers for some time each: `python -m fuzz.run --seconds 180 [TARGET…]`.

An input that breaks one is kept under build/fuzz/ with its traceback printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fuzz.bench import Workbench
from fuzz.corpus import inputs
from fuzz.mutate import mutate
from fuzz.targets import TARGETS
from table_text import write

LONGEST_S = 3.0
"""CPU seconds that an input of mutate.MAX_BYTES may take."""
MEMORY = 4 << 30
KEPT = Path("build/fuzz")
_MOST_KINDS = 20


@dataclass
class Tally:
    """What a target was given, how long the slowest input took, and the faults by their kind, an input each."""

    inputs: int = 0
    slowest_s: float = 0.0
    faults: dict[str, bytes] = field(default_factory=dict)


def attempt(target: str, data: bytes, bench: Workbench, tally: Tally) -> None:
    """Runs an input, and notes what it breaks."""
    began = time.process_time()
    faulthandler.dump_traceback_later(60 * LONGEST_S, exit=True)
    try:
        TARGETS[target](data, bench)
        took = time.process_time() - began
        tally.slowest_s = max(tally.slowest_s, took)
        assert took < LONGEST_S, f"it took {took:.1f} s"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        if kind not in tally.faults:
            tally.faults[kind] = data
            traceback.print_exc()
    finally:
        faulthandler.cancel_dump_traceback_later()
    tally.inputs += 1


def fuzz(target: str, seed: int, seconds: float, bench: Workbench) -> Tally:
    """Runs mutations for so many CPU seconds; which and in what order follows from `seed`."""
    tally, until = Tally(), time.process_time() + seconds
    for data in mutations(target, seed):
        attempt(target, data, bench, tally)
        if time.process_time() > until or len(tally.faults) == _MOST_KINDS:
            break
    return tally


def mutations(target: str, seed: int) -> Iterator[bytes]:
    """Without end: what is made of the target's corpus."""
    random, seeds = Random(f"{target} {seed}"), list(inputs(target).values())
    while True:
        yield mutate(random.choice(seeds), seeds, random)


def report(target: str, seconds: float, tally: Tally) -> Iterator[str]:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    yield (
        f"{target}: {tally.inputs} inputs in {seconds:g} CPU seconds, slowest {tally.slowest_s:.2f} s, "
        f"peak {peak} MiB, {len(tally.faults)} faults"
    )
    for kind, data in tally.faults.items():
        path = write(KEPT / target / sha256(data).hexdigest()[:12], data)
        yield f"  {kind}: {path}"


def main() -> int:
    arguments = argparse.ArgumentParser(description="Fuzz the parsers.")
    arguments.add_argument("--seconds", type=float, default=10.0, help="CPU seconds a target")
    arguments.add_argument("--seed", type=int, default=time.time_ns(), help="to repeat a run")
    arguments.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="all, unless some are named")
    told = arguments.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print(f"seed {told.seed}", flush=True)
    failed = False
    for target in told.targets or TARGETS:
        with TemporaryDirectory() as folder:
            tally = fuzz(target, told.seed, told.seconds, Workbench(Path(folder)))
        print("\n".join(report(target, told.seconds, tally)), flush=True)
        failed |= bool(tally.faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
