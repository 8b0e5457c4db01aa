from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from moeshapes.findings import Finding
from moeshapes.report.serving_view import Serving, as_markdown, as_text, steps_table
from moeshapes.report.steps import Steps, steps_of
from moeshapes.report.trace_file import Trace, read_trace
from serving_samples import ATTENTION, MOE, trace


def sound(path: Path) -> Trace:
    found = read_trace(path)
    assert isinstance(found, Trace)
    return found


def steps(path: Path, **how: Any) -> Steps:
    found = steps_of(sound(path), **how)
    assert isinstance(found, Steps)
    return found


def plain(folder: Path) -> str:
    """The text of a trace."""
    return gzip.decompress(trace(folder / "a.json.gz", 40.0).read_bytes()).decode()


@pytest.mark.parametrize("on_gpu", [True, False], ids=["on the GPU's own ranges", "by what was launched in a range"])
@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        ("step[DECODE bs=16]", "decode, 16 requests"),
        ("step[DECODE bs=16 g_sq=16 g_sk=9000]", "decode, 16 requests"),
        ("step[VERIFY bs=4]", "verify, 4 requests"),
        ("execute_context_0(0)_generation_32(32)", "decode, 32 requests"),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk9sqsq1sqsk1)", "decode, 32 requests"),
        ("execute_new_0_cached_8", "decode, 8 requests"),
    ],
)
def test_decode_steps_are_those_that_are_annotated(tmp_path: Path, annotation: str, kind: str, on_gpu: bool) -> None:
    found = steps(trace(tmp_path / "a.json.gz", 40.0, annotation=annotation, on_gpu=on_gpu))
    assert [step.kind for step in found.steps] == [kind] * 5
    assert all(step.wall_us == pytest.approx(100.0) for step in found.steps)


@pytest.mark.parametrize(
    "annotation", ["step[EXTEND bs=1 toks=107]", "execute_context_1(107)_generation_2(2)", "decode", ""]
)
def test_other_steps_are_none(tmp_path: Path, annotation: str) -> None:
    found = steps_of(sound(trace(tmp_path / "a.json.gz", 40.0, annotation=annotation)))
    assert isinstance(found, Finding)
    assert found.rule.name == "no-steps"


def test_kernels_that_overlap_count_once(tmp_path: Path) -> None:
    found = steps(trace(tmp_path / "a.json.gz", 40.0))
    assert all(step.moe_us == pytest.approx(40.0) for step in found.steps)
    assert found.kernels == pytest.approx({MOE: 24.0, "moe_reduction_kernel_0": 20.0})


def test_steps_can_be_told_by_their_gaps(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json.gz", 40.0, annotation="")
    found = steps(path, gap_us=50.0)
    assert [step.kind for step in found.steps] == ["step"] * 3
    assert all(step.wall_us == pytest.approx(100.0) for step in found.steps)
    nothing = steps_of(sound(path), gap_us=1000.0)
    assert isinstance(nothing, Finding)
    assert nothing.rule.name == "no-steps"


def test_other_kernels_can_be_named_as_the_moes(tmp_path: Path) -> None:
    path = trace(tmp_path / "a.json.gz", 40.0)
    assert set(steps(path, symbols="attention").kernels) == {ATTENTION}
    nothing = steps_of(sound(path), symbols="gemv")
    assert isinstance(nothing, Finding)
    assert nothing.rule.name == "no-moe-kernels"


@pytest.mark.parametrize(
    "name",
    [
        "_ZN5aiter51fmoe_bf16_a16_blockscaleFp8_g1u1_vs_silu_1tg_16x256E",
        "mfma_moe2_afp8_wfp4_bf16_atomic_t32x128x256_vscale_fix3",
        "gemm2_a4w4_port_ne384_bm16",
        "void ck_tile::kentry<256, ck_tile::MoeFlatmmKernel<...>>",
        "opus_moe_stage2_a8w4_decode_kernel_gfx950",
        "moe_align_block_size_kernel",
        "fused_moe_kernel",
        "sort_place_pad_kernel_impl",
        "cktile_a8w4_bm32",
    ],
)
def test_the_moes_kernels_of_aiter_and_of_servers_are_known(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(plain(tmp_path).replace(MOE, name), encoding="utf-8")
    assert name in steps(path).kernels


@pytest.mark.parametrize("name", ["Cijk_Alik_Bljk_BBS_MT128", "nccl_all_reduce", "paged_attention", "topkGating"])
def test_other_kernels_are_not(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(plain(tmp_path).replace(ATTENTION, name), encoding="utf-8")
    assert name not in steps(path).kernels


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x1f\x8bnot gzip",
        b"{}",
        b"[]",
        b"[1, 2]",
        b'{"traceEvents": 3}',
        b'{"traceEvents": [{"cat": "kernel", "ph": "X", "name": 3, "ts": 1, "dur": 1}]}',
        b'{"traceEvents": [{"cat": "kernel", "ph": "X", "name": "k", "ts": NaN, "dur": 1}]}',
        b'{"traceEvents": [{"cat": ["kernel"], "ph": "X"}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_trace_is_a_finding(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    found = read_trace(path)
    assert isinstance(found, Finding)
    assert found.rule.name == "bad-trace"


def test_a_trace_that_unpacks_to_too_much_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moeshapes.report.trace_file.MAX_BYTES", 1000)
    found = read_trace(trace(tmp_path / "a.json.gz", 40.0))
    assert isinstance(found, Finding)
    assert "unpacked" in found.message


def test_one_gpu_of_several_is_read(tmp_path: Path) -> None:
    value = json.loads(plain(tmp_path))
    second = [{**event, "pid": 1, "ts": event["ts"] + 50} for event in value["traceEvents"] if "ts" in event]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"traceEvents": value["traceEvents"] + second}), encoding="utf-8")
    assert all(step.wall_us == pytest.approx(100.0) for step in steps(path).steps)


def test_arms_stand_below_each_other_with_their_change(tmp_path: Path) -> None:
    by_arm = {name: steps(trace(tmp_path / name, moe)) for name, moe in (("before", 50.0), ("after", 40.0))}
    _, (before, after) = steps_table(by_arm)
    assert before == ("before", "decode, 16 requests", "5", "50 [50, 50]", "100 [100, 100]", "50.0 %", "")
    assert after[3:] == ("40 [40, 40]", "100 [100, 100]", "40.0 %", "−20.0 %, 0.0 %")
    serving = Serving(("before", "after"), (), 1, (), by_arm)
    assert MOE in as_text(serving)
    assert f"| {MOE} | 24 |" in as_markdown(serving)
