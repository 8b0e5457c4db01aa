"""Rules of serving results and traces: what keeps two arms from being compared."""

from __future__ import annotations

from moeshapes.rule import Rule, Severity

BAD_RESULT = Rule(
    "MOE571", "bad-result", Severity.ERROR,
    what="A file, or a line of it, is no result of `sglang.bench_serving` or `vllm bench serve`.",
    why="A round that is left out in silence would change what the others say.",
    fix="Give the files that the benchmark wrote (--output-file of SGLang, --save-result of vLLM).",
)  # fmt: skip
SETTINGS_DIFFER = Rule(
    "MOE572", "settings-differ", Severity.ERROR,
    what="Two rounds that are to be compared were run with other settings.",
    why="The difference may be that of the settings and not of the rows.",
    fix="Run both arms with the same settings, or name what the comparison is about with --may-differ.",
)  # fmt: skip
ROUNDS_DIFFER = Rule(
    "MOE573", "rounds-differ", Severity.ERROR,
    what="An arm lacks a shape, or rounds of one, that the other has.",
    why="Rounds are compared in pairs, each with what ran beside it.",
    fix="Run the missing rounds, or leave the others out.",
)  # fmt: skip
FAILED_REQUESTS = Rule(
    "MOE574", "failed-requests", Severity.ERROR,
    what="Requests of a round failed.",
    why="Throughput and latency leave them out: a server that refuses work looks fast.",
    fix="Find out why, and run the round again.",
)  # fmt: skip
NOT_INTERLEAVED = Rule(
    "MOE575", "not-interleaved", Severity.WARNING,
    what="All rounds of one arm ran before those of the other.",
    why="What drifts meanwhile (clocks, neighbours, caches) looks like a difference between the arms.",
    fix="Alternate the arms: A, B, A, B.",
)  # fmt: skip
FEW_ROUNDS = Rule(
    "MOE576", "few-rounds", Severity.WARNING,
    what="A shape was run in a single round.",
    why="One pair has no spread, so that nothing says whether its difference is noise.",
    fix="Run at least two rounds of both arms, better four.",
)  # fmt: skip
BAD_TRACE = Rule(
    "MOE577", "bad-trace", Severity.ERROR,
    what="A file is no trace of the PyTorch profiler, or one without GPU kernels.",
    why="Nothing can be read from it.",
    fix="Give the .json or .json.gz that the profiler exported, with GPU activity recorded.",
)  # fmt: skip
NO_STEPS = Rule(
    "MOE578", "no-steps", Severity.ERROR,
    what="A trace has no decode step that can be told from the next.",
    why="Times a step need steps.",
    fix="Profile with SGLang's or vLLM's own annotations, or give --step-gap MICROSECONDS.",
)  # fmt: skip
NO_MOE_KERNELS = Rule(
    "MOE579", "no-moe-kernels", Severity.ERROR,
    what="No kernel of a trace's decode steps is known as one of the MoE.",
    why="A share of 0 % would be taken for a result.",
    fix="Say which kernels are with --kernels REGEX.",
)  # fmt: skip
