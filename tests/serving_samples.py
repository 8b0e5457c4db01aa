"""Files as serving benchmarks and the PyTorch profiler write them, of made-up measurements."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def sglang(throughput: float, tpot_ms: float = 20.0, **facts: object) -> dict[str, Any]:
    """A result of sglang.bench_serving of 64 requests at 1024/512; no bound on rate is written as Infinity."""
    return {
        "tag": None,
        "backend": "sglang",
        "dataset_name": "random",
        "request_rate": float("inf"),
        "max_concurrency": 16,
        "sharegpt_output_len": None,
        "random_input_len": 1024,
        "random_output_len": 512,
        "random_range_ratio": 1.0,
        "server_info": {"tp_size": 4, "pp_size": 1, "dp_size": 1, "version": "0.5.23", "port": 30000, "random_seed": 7},
        "duration": 64 * 1536 / throughput,
        "completed": 64,
        "total_input_tokens": 64 * 1024,
        "total_output_tokens": 64 * 512,
        "total_throughput": throughput,
        "mean_tpot_ms": tpot_ms * 1.01,
        "median_tpot_ms": tpot_ms,
        **facts,
    }


def vllm(throughput: float, tpot_ms: float = 20.0, **facts: object) -> dict[str, Any]:
    """A result of `vllm bench serve`, which does not state the lengths that were asked for."""
    return {
        "date": "20261130-040000",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None,
        "model_id": "zai-org/GLM-5.2",
        "tokenizer_id": "zai-org/GLM-5.2",
        "num_prompts": 64,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 16,
        "duration": 64 * 1536 / throughput,
        "completed": 64,
        "failed": 0,
        "total_input_tokens": 64 * 1024 - 40,
        "total_output_tokens": 64 * 512,
        "total_token_throughput": throughput,
        "median_tpot_ms": tpot_ms,
        **facts,
    }


def write_lines(path: Path, results: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(result) + "\n" for result in results), encoding="utf-8")
    return path


MOE, ATTENTION = "mfma_moe1_silu_mul_afp4_wfp4_bf16_t32x128x256", "attention_fwd"


def trace(
    path: Path, moe_us: float, steps: int = 5, annotation: str = "step[DECODE bs=16]", on_gpu: bool = True
) -> Path:
    """Steps of 100 µs each, 200 µs apart; two MoE kernels that overlap by a tenth, then attention to the end."""
    events = [event for number in range(steps) for event in _step(number, moe_us, annotation, on_gpu)]
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        json.dump({"schemaVersion": 1, "traceEvents": [*events, {"ph": "M", "name": "process_name"}]}, stream)
    return path


def _step(number: int, moe_us: float, annotation: str, on_gpu: bool) -> Iterator[dict[str, Any]]:
    start, correlation = 1000.0 + 200.0 * number, 10 + number
    ranges = ("gpu_user_annotation", start, 100.0) if on_gpu else ("user_annotation", start - 900.0, 50.0)
    if annotation:
        yield _event(annotation, *ranges)
    yield _event("hipGraphLaunch", "cuda_runtime", start - 880.0, 5.0, correlation)
    yield _event(MOE, "kernel", start, 0.6 * moe_us, correlation)
    yield _event("moe_reduction_kernel_0", "kernel", start + 0.5 * moe_us, 0.5 * moe_us, correlation)
    yield _event(ATTENTION, "kernel", start + moe_us, 100.0 - moe_us, correlation)


def _event(name: str, category: str, start: float, duration: float, correlation: int | None = None) -> dict[str, Any]:
    facts = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": duration, "args": facts}
