from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from declared import SHAPE, declared
from moeshapes.coverage import Cell, Coverage, Status, cover, strays, totals
from moeshapes.coverage_view import as_json, as_text
from moeshapes.deployment import deployments
from moeshapes.dispatch import BUCKETS
from moeshapes.runtime.merged import merge
from table_text import line, table

OPUS = "opus_moe2_afp8_wfp4_bf16_t32x128x256_sbm32"
_A8W4 = "recipe: a8w4\ngate_mode: interleave\nenv: {AITER_BF16_FP8_MOE_BOUND: 5}\npad: {inter_dim: 128}"
_TOKENS = "tokens: [8, 16, 32, 64], left_out: [{tokens: 8192.., reason: long prefill}]"
TEXT = SHAPE.replace("recipe: fp8_token", _A8W4).replace("tokens: [1, 32]", _TOKENS)
FEW_TOKENS = TEXT.replace(_TOKENS, "tokens: [8, 16, 32]")
MX = ("flydsl_mxmoe_g1_a4w4_16x256x256_f16in_nt", "flydsl_mxmoe_g2_a4w4_16x256x256_atomic")


def row_of(token: int, **cells: str) -> str:
    own = {"token": str(token), "model_dim": "5120", "inter_dim": "640", "expert": "384", "topk": "6"}
    return line(**{**own, **cells})


def covered(root: Path, *lines: str, text: str = TEXT) -> Coverage:
    declarations, findings = declared(root, tp4=text)
    assert not findings
    (found,) = cover(deployments(declarations), merge([table(*lines)]))
    return found


def statuses(coverage: Coverage) -> dict[int, Status]:
    return {cell.bucket: cell.status for cell in coverage.cells}


def test_each_way_in_which_a_bucket_is_served_or_not(tmp_path: Path) -> None:
    lines = [
        row_of(8),
        row_of(16, act_type="ActivationType.Gelu"),
        row_of(32, kernelName2=OPUS, block_m="64"),
        row_of(8192),
    ]
    found = statuses(covered(tmp_path, *lines))
    assert list(found) == list(BUCKETS)
    assert [found[bucket] for bucket in (1, 2, 4)] == [Status.NOT_ASKED] * 3
    assert found[8] is Status.EXACT
    assert found[16] is Status.OTHER_ACTIVATION
    assert found[32] is Status.DISCARDED
    assert found[64] is found[128] is Status.GAP
    assert found[8192] is Status.EXACT
    assert found[16384] is found[32768] is found[131072] is Status.LEFT_OUT


def test_the_top_bucket_takes_the_smaller_tiers_row(tmp_path: Path) -> None:
    found = covered(tmp_path, row_of(32768)).cells[-1]
    assert (found.bucket, found.status, found.note) == (131072, Status.TIER, "the row for 32768")


def test_a_bucket_may_ask_for_two_formats(tmp_path: Path) -> None:
    cells = {cell.bucket: cell for cell in covered(tmp_path, text=TEXT.replace("BOUND: 5", "BOUND: 7")).cells}
    assert cells[8].tokens == 7
    assert [number.value for number in cells[8].others] == ["bf16"]
    assert cells[4].note == "calls ask for bf16 activations"


def test_notes_say_why(tmp_path: Path) -> None:
    text = as_text([covered(tmp_path, row_of(8), row_of(16, act_type="ActivationType.Gelu"))])
    assert "other activation at 16: a row of Gelu" in text
    assert "gap at 32, 64 (declared): FlyDSL's fallback" in text
    assert "gap at 128..4096 (neither declared nor left out): FlyDSL's fallback" in text
    assert "left out at 8192..32768, 131072: long prefill" in text
    assert text.endswith(
        "deployments x buckets: 1 x 17: 1 exact, 1 other activation, 4 left out, 3 not asked for, 8 gap"
    )


def test_gaps_that_no_shape_declares_are_told_from_those_that_it_does(tmp_path: Path) -> None:
    text = as_text([covered(tmp_path, row_of(8), text=FEW_TOKENS)])
    assert "gap at 16, 32 (declared): FlyDSL's fallback" in text
    assert "gap at 64..32768, 131072 (neither declared nor left out): FlyDSL's fallback" in text
    assert "\n131072: calls of that many tokens and more; the row for 32768 serves them" in text
    assert "\n131072: " not in as_text([covered(tmp_path, row_of(32768))])


def test_the_top_bucket_is_declared_with_the_one_it_falls_back_to(tmp_path: Path) -> None:
    text = as_text([covered(tmp_path, text=FEW_TOKENS.replace("[8, 16, 32]", "16384.."))])
    assert "gap at 16384, 32768, 131072 (declared): " in text


def test_the_grid_shows_kernels_and_marks(tmp_path: Path) -> None:
    header, grid, *_ = as_text(
        [covered(tmp_path, row_of(8), row_of(16, act_type="ActivationType.Gelu"), row_of(32768))]
    ).split("\n")
    assert len(grid) <= len(header) + 1
    assert "FF   FF~  .." in grid
    assert grid.endswith("FF^")
    assert " ".join(header.split()) == "1 2 4 8 16 32 64 128 256 512 1k 2k 4k 8k 16k 32k 128k"


def test_hazards_are_marked(tmp_path: Path) -> None:
    text = as_text([covered(tmp_path, row_of(8, kernelName1=MX[0], kernelName2=MX[1]))])
    assert "MM!" in text.split("\n")[1]


def test_json_holds_every_cell(tmp_path: Path) -> None:
    found = json.loads(json.dumps(as_json([covered(tmp_path, row_of(8))])))
    (deployment,) = found["deployments"]
    assert deployment["shape"] == "5120/640/384/6"
    assert [cell["bucket"] for cell in deployment["buckets"]] == list(BUCKETS)
    assert deployment["buckets"][3]["row"] == "a_tuned_fmoe.csv:2"
    assert deployment["buckets"][3]["family"] == "flydsl_moe1 + flydsl_moe2"
    assert sum(found["totals"].values()) == len(BUCKETS)


@pytest.mark.parametrize(
    ("families", "expected"),
    [("AAA", []), ("ABA", [2]), ("ABB", []), ("A-B-A", [4]), ("ABAB", [2, 4])],
)
def test_a_stray_bucket_differs_from_both_neighbours(tmp_path: Path, families: str, expected: list[int]) -> None:
    example = covered(tmp_path, row_of(8)).cells[3]
    cells: list[Cell] = [
        replace(example, bucket=1 << n, family=family, row=None if family == "-" else example.row)
        for n, family in enumerate(families)
    ]
    assert strays(cells) == expected


def test_nothing_declared_is_nothing_covered() -> None:
    assert sum(totals([]).values()) == 0
    assert as_text([]).endswith("deployments x buckets: 0 x 17: nothing")
