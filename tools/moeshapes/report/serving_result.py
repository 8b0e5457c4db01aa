"""Results of serving benchmarks: the files of `sglang.bench_serving` (JSON lines) and of `vllm bench serve` (JSON).

The names of fields are those of sglang/benchmark/serving.py (SGLang 0.5.23; python/sglang/bench_serving.py before) and
of vllm/benchmarks/serve.py (vLLM at 009e6d4a1c).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from moeshapes.findings import Finding, Place
from moeshapes.report.serving_rules import BAD_RESULT, FAILED_REQUESTS

MAX_BYTES = 256 << 20
"""With --output-details and --save-detailed a result has every token's latency."""
_MEASURED = (1e-12, 1e12)
"""What a rate, a time or a count may be at all: beyond it, none can be reckoned with."""
_LARGEST = 10**9
"""Far more than the tokens of a request, the requests of a benchmark, or the GPUs of a server."""
MAX_FINDINGS = 100
"""What is read no further has nothing to do with a benchmark."""
_SETTINGS = (
    *("backend", "endpoint_type", "dataset_name", "model_id", "tokenizer_id", "num_prompts"),
    *("request_rate", "burstiness", "max_concurrency", "ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps"),
    *("sharegpt_output_len", "random_input_len", "random_output_len", "random_range_ratio"),
)
"""What a result says of how it came about. Other fields are measurements, or labels that a user added."""
_SERVER = "server_info"
_OF_ONE_START = frozenset(
    {
        *("host", "port", "nccl_port", "grpc_port", "dist_init_addr", "random_seed", "startup_time", "launch_command"),
        *("max_total_num_tokens", "status", "log_level", "log_level_http", "watchdog_timeout", "api_key"),
    }
)
"""What SGLang's server_info says of one start of a server: it differs between two equal ones."""


@dataclass(frozen=True)
class Result:
    """One round of one shape. Throughput of all tokens in tokens a second, TPOT (median) in milliseconds.

    `input_len` and `output_len` are tokens a request, the mean where the benchmark does not state them; `concurrency`
    is None without a bound. `gpus` is None where the result does not tell. `date` is empty where it does not.
    """

    place: Place
    input_len: int
    output_len: int
    concurrency: int | None
    throughput: float
    tpot_ms: float
    gpus: int | None
    date: str
    settings: Mapping[str, str]

    @property
    def shape(self) -> str:
        """`1024/512, 16 at once`."""
        bound = "unbounded" if self.concurrency is None else f"{self.concurrency} at once"
        return f"{self.input_len}/{self.output_len}, {bound}"


def read_results(path: Path) -> tuple[list[Result], list[Finding]]:
    """The results of a file in its order, and what is wrong with it. Raises OSError."""
    with path.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        return [], [Finding(BAD_RESULT, Place(str(path)), f"larger than {MAX_BYTES >> 20} MiB")]
    results: list[Result] = []
    findings: list[Finding] = []
    for place, value in _values(content, str(path)):
        if len(findings) >= MAX_FINDINGS:
            break
        found = _result(place, value)
        if isinstance(found, Result):
            results.append(found)
            findings += _failures(place, value)
        else:
            findings.append(Finding(BAD_RESULT, place, found))
    if not results and not findings:
        findings.append(Finding(BAD_RESULT, Place(str(path)), "the file has no result"))
    return results, findings


def _values(content: bytes, name: str) -> Iterator[tuple[Place, object]]:
    """The JSON values of a file: a single one over many lines, or one a line."""
    whole = _parsed(content)
    if isinstance(whole, dict):
        yield Place(name, 1), whole
        return
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            yield Place(name, number), _parsed(line)


def _parsed(content: bytes) -> object:
    """JSON as Python's own module writes it, infinite rates included; None for anything else."""
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value


def _result(place: Place, value: object) -> Result | str:
    """The result, or why there is none."""
    if not isinstance(value, dict):
        return "neither a JSON object nor a line with one"
    try:
        return _result_of(place, value)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        missing = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        return f"not what a serving benchmark writes: {missing}"


def _result_of(place: Place, value: Mapping[str, Any]) -> Result:
    completed = _positive(value, "completed")
    tokens_in, tokens_out = (_positive(value, f"total_{kind}_tokens") for kind in ("input", "output"))
    total = next((name for name in ("total_token_throughput", "total_throughput") if name in value), None)
    # SGLang of before 0.5 writes no total.
    throughput = _positive(value, total) if total else (tokens_in + tokens_out) / _positive(value, "duration")
    bound = value.get("max_concurrency")
    return Result(
        place,
        input_len=_length(value, "random_input_len", tokens_in / completed),
        output_len=_length(value, "random_output_len", tokens_out / completed),
        concurrency=None if bound is None else _count("max_concurrency", bound),
        throughput=throughput,
        tpot_ms=_positive(value, "median_tpot_ms"),
        gpus=_gpus(value.get(_SERVER)),
        date=str(value.get("date") or ""),
        settings=_settings(value, completed),
    )


def _positive(value: Mapping[str, Any], name: str) -> float:
    number = float(value[name])
    if not _MEASURED[0] <= number <= _MEASURED[1]:
        raise ValueError(f"{name} is {number:g}")
    return number


def _length(value: Mapping[str, Any], name: str, mean: float) -> int:
    """Tokens a request: as the benchmark was told to draw them, else as they came out."""
    told = value.get(name) if str(value.get("dataset_name", "random")).startswith("random") else None
    return round(mean) if told is None else _count(name, told)


def _count(name: str, told: Any) -> int:
    """A whole number. JSON has some that are no floats, which nothing could be compared with."""
    number = int(told)
    if not 0 <= number <= _LARGEST:
        raise ValueError(f"{name} is {str(told)[:40]}")
    return number


def _gpus(server: object) -> int | None:
    """GPUs of an SGLang server: tensor times pipeline parallel ones, for each replica that has its own."""
    if not isinstance(server, dict) or not isinstance(server.get("tp_size"), int):
        return None
    replicas = 1 if server.get("enable_dp_attention") else server.get("dp_size")
    factors = [_count(_SERVER, factor or 1) for factor in (server["tp_size"], server.get("pp_size"), replicas)]
    if 0 in factors:
        raise ValueError(f"{_SERVER} is of no GPU")
    return prod(factors)


def _settings(value: Mapping[str, Any], completed: float) -> dict[str, str]:
    own = {name: _text(value[name]) for name in _SETTINGS if value.get(name) is not None}
    server = value.get(_SERVER)
    facts = server.items() if isinstance(server, dict) else ()
    of_server = {f"{_SERVER}.{name}": _text(fact) for name, fact in facts if name not in _OF_ONE_START}
    return {**own, "completed": _text(int(completed)), **{name: fact for name, fact in of_server.items() if fact}}


def _text(fact: object) -> str:
    """A plain fact as text; empty for what holds others, which is state and no setting."""
    return "" if isinstance(fact, dict | list) else str(fact)


def _failures(place: Place, value: object) -> Iterator[Finding]:
    assert isinstance(value, dict)
    asked, done, failed = (value.get(name) for name in ("num_prompts", "completed", "failed"))
    lost = failed if isinstance(failed, int) and failed else 0
    if not lost and isinstance(asked, int) and isinstance(done, int):
        lost = asked - done
    if lost > 0:
        yield Finding(FAILED_REQUESTS, place, f"{lost} of {lost + int(done or 0)} requests failed")
