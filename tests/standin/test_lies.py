"""Each lie on request: what it makes false, and what still tells."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from moeshapes.verify.poison import Pattern, Poison
from standin.aiter_of_test import drawn, fused_moe, problem, row_of, serving
from standin.prepared import arguments_of
from standin.test_dispatch import listening

PAIR = ("flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui_fp8", "flydsl_moe2_afp8_wfp4_bf16_t32x128x256_reduce")
WHAT = problem("a8w4", intermediate_pad=64, pads_as_arguments=True)


def run(folder: Path, *lies: str) -> tuple[torch.Tensor, list[str], list[str], list[str], list[str]]:
    """The output, the names and symbols that really ran, what a profiler saw, and the log."""
    layer, call = drawn(WHAT)
    with serving(folder, row_of(WHAT, *PAIR), lies=lies) as aiter:
        arguments = arguments_of(layer, call)
        with listening() as lines, profile(activities=[ProfilerActivity.CPU]) as profiler:
            output = fused_moe(**arguments)
        ran = [launch for launch in aiter.standin.launched() if launch.stage]
    seen = [event.name for event in profiler.events() or ()]
    return output, [launch.name for launch in ran], [launch.symbol for launch in ran], seen, lines


@pytest.fixture
def truth(tmp_path: Path) -> tuple[torch.Tensor, list[str]]:
    output, names, symbols, seen, lines = run(tmp_path)
    assert names == [*PAIR]
    assert {*symbols} <= {*seen}
    assert any("kernelName1" in line for line in lines)
    assert output.isfinite().all()
    return output, symbols


def test_label(tmp_path: Path, truth: tuple[torch.Tensor, list[str]]) -> None:
    _, names, symbols, _, lines = run(tmp_path, "label")
    assert any(PAIR[0] in line for line in lines)
    assert not {*names} & {*PAIR}
    assert not {*symbols} & {*truth[1]}


def test_discarded(tmp_path: Path, truth: tuple[torch.Tensor, list[str]]) -> None:
    _, names, _, _, lines = run(tmp_path, "discarded")
    assert not {*names} & {*PAIR}
    assert any("discarding Opus tuned config for" in line for line in lines)


def test_downgraded(tmp_path: Path, truth: tuple[torch.Tensor, list[str]]) -> None:
    output, names, symbols, _, lines = run(tmp_path, "downgraded")
    assert names == [*PAIR]
    assert "t32x64x256" in symbols[0]
    assert "t32x128x128" in symbols[1]
    assert not any("FlyDSL MoE" in line for line in lines)
    assert torch.equal(output, truth[0])


def test_unwritten_pads_show_where_what_was_allocated_is_poisoned(tmp_path: Path) -> None:
    with Poison(Pattern.FIRST):
        output, names, *_ = run(tmp_path, "unwritten_pads")
    assert names == [*PAIR]
    assert output.isnan().any(dim=1).all()


def test_untraced(tmp_path: Path, truth: tuple[torch.Tensor, list[str]]) -> None:
    _, _, symbols, seen, _ = run(tmp_path, "untraced")
    assert symbols == truth[1]
    assert not {*symbols} & {*seen}


def test_silent(tmp_path: Path, truth: tuple[torch.Tensor, list[str]]) -> None:
    output, *_, lines = run(tmp_path, "silent")
    assert lines == []
    assert torch.equal(output, truth[0])


def test_lying_for_a_while(tmp_path: Path) -> None:
    layer, call = drawn(WHAT)
    with serving(tmp_path, row_of(WHAT, *PAIR)) as aiter:
        arguments = arguments_of(layer, call)
        with Poison(Pattern.FIRST), aiter.standin.lying("unwritten_pads"):
            assert fused_moe(**arguments).isnan().any()
        assert fused_moe(**arguments).isfinite().all()
        with pytest.raises(aiter.standin.StandinRefused, match="no such lie: white"), aiter.standin.lying("white"):
            pass
