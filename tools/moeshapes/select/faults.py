"""What can be wrong where a tuner's candidates are chosen from."""

from __future__ import annotations

from moeshapes.rule import Rule, Severity

NO_CANDIDATES = Rule(
    "MOE531", "no-candidates", Severity.ERROR,
    what="A profile has no timed candidate of the keys that are asked for.",
    why="There is nothing to choose from: it is of another GPU or other shapes, or the tuner timed nothing.",
    fix="Tune the shape, or name its device with --gfx and --cu-num.",
)  # fmt: skip
NONE_KEPT = Rule(
    "MOE532", "none-kept", Severity.WARNING,
    what="No candidate of a key is right under every declared use and faster than what runs without a row.",
    why="What runs without a row is then the best that is known for these calls.",
    fix="Take more candidates with --top, tune again, or list the bucket under `left_out` with the reason.",
)  # fmt: skip
NONE_JUDGED = Rule(
    "MOE533", "none-judged", Severity.ERROR,
    what="No candidate of a key could be judged.",
    why="All of them crashed, hung or were skipped, so nothing is known of any.",
    fix="See the reasons above; where a GPU is needed, run it on one.",
)  # fmt: skip
ONLY_EMULATED = Rule(
    "MOE534", "only-emulated", Severity.ERROR,
    what="The best candidate of a key passed in emulation alone.",
    why="Emulation proves what its kernels are named to compute, never that they do.",
    fix="Run it on the GPU that the row is for, or take it unproven with --allow-emulated.",
)  # fmt: skip
TUNER_FAILED = Rule(
    "MOE535", "tuner-failed", Severity.ERROR,
    what="AITER's tuner ended with an error.",
    why="It writes what it has per batch, so that candidates of other shapes may be missing.",
    fix="See its log, and run it again: shapes that it has finished are not tuned twice.",
)  # fmt: skip
