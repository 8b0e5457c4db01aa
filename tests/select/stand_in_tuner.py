"""A tuner for tests: takes the flags of AITER's gemm_moe_tune.py alone, and leaves what that one leaves."""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("-i", "--untune_file", required=True)
parser.add_argument("-o", "--tune_file", required=True)
parser.add_argument("-o2", "--profile_file", required=True)
parser.add_argument("--errRatio", type=float, required=True)
parser.add_argument("--mp", type=int, default=8)
options = parser.parse_args()

mode = os.environ.get("STAND_IN_TUNER", "")
print(f"tuning with errRatio {options.errRatio} and mp {options.mp}", flush=True)
if mode == "hang":
    time.sleep(600)
with open(options.untune_file, encoding="utf-8") as untuned:
    assert {"token", "model_dim", "q_type"} <= set(next(csv.reader(untuned)))
dumped = Path(os.environ["AITER_TUNE_CANDIDATE_DUMP_DIR"])
if mode != "old":
    kernels = os.environ["STAND_IN_KERNELS"]
    (dumped / "gfx950_cu256_t8.csv").write_bytes(Path(kernels).read_bytes())
Path(options.profile_file).write_bytes(Path(os.environ["STAND_IN_PAIRS"]).read_bytes())
if mode == "fail":
    print("no valid candidate found for a shape", file=sys.stderr)
    sys.exit(3)
