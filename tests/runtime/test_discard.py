from __future__ import annotations

from dataclasses import replace

import pytest

from moeshapes.row import TunedRow
from moeshapes.runtime.call import RuntimeCall, call_of_key
from moeshapes.runtime.discard import discard_reason
from table_text import row

OPUS1 = "opus_moe1_afp8_wfp4_bf16_t32x64_pair_kw2_m1"
OPUS2 = "opus_moe2_afp8_wfp4_bf16_t32x128x256_sbm32"


def opus(**cells: str) -> TunedRow:
    return row(**{"kernelName2": OPUS2, "block_m": "32", **cells})


def call(tuned: TunedRow, **changes: object) -> RuntimeCall:
    return replace(call_of_key(tuned.key), **changes)  # type: ignore[arg-type]


def test_a_sound_row_is_used() -> None:
    assert not discard_reason(opus(), call(opus()))
    assert not discard_reason(row(), call(row(), shuffled=False, expert_mask=True, bias=True))


@pytest.mark.parametrize(
    ("tuned", "changes", "reason"),
    [
        (opus(), {"shuffled": False}, "marked is_shuffled"),
        (opus(), {"expert_mask": True}, "no expert mask"),
        (opus(), {"bias": True}, "no bias"),
        (opus(), {"gfx": "gfx942"}, "gfx950, not gfx942"),
        (opus(block_m="64"), {}, "sorts blocks of 32, the row says block_m 64"),
        (opus(kernelName2="opus_moe2_new"), {}, "no stage 2 of the name `opus_moe2_new`"),
        (row(kernelName1=OPUS1), {"activation": "gelu"}, "opus stage 1 has no gelu"),
        (row(), {"env": {"AITER_BYPASS_TUNE_CONFIG": "1"}}, "AITER_BYPASS_TUNE_CONFIG is 1"),
    ],
)
def test_what_is_thrown_away_and_why(tuned: TunedRow, changes: dict[str, object], reason: str) -> None:
    assert reason in discard_reason(tuned, call(tuned, **changes))


def test_stage_1_alone_takes_bias_and_mask() -> None:
    tuned = row(kernelName1=OPUS1)
    assert not discard_reason(tuned, call(tuned, bias=True, expert_mask=True))
