"""Real faults of the past whose right answer is one of `explain` or `coverage`, a test a case."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from declared import declared
from moeshapes.coverage import Status, cover
from moeshapes.deployment import deployments
from moeshapes.explain import Explanation, explain
from moeshapes.family import AITER_CONFIGS, read_family
from moeshapes.questions import Circumstances, ask_about_key
from moeshapes.recipe import Format
from moeshapes.runtime.call import call_of_key
from moeshapes.runtime.merged import MergedTable, merge
from moeshapes.runtime.version import Version
from table_text import line, row, table, text, write

FP4, FP8, BF16 = "torch.float4_e2m1fn_x2", "torch.float8_e4m3fn", "torch.bfloat16"
BOUND = {"AITER_BF16_FP8_MOE_BOUND": "0"}


@pytest.fixture(scope="module")
def aiter(aiter_configs: Path) -> MergedTable:
    return merge(read_family(aiter_configs, AITER_CONFIGS, lambda path: path.name).tuned.values())


def asked(key: str, rows: MergedTable, *tokens: int, **circumstances: object) -> list[Explanation]:
    """Explanations of a key as AITER logs it: `gfx950,256,…`, `…` for the cells that most cases share."""
    whole = key.replace("…", "Silu,bf16,fp8,fp4x2,per_1x32,1,0").replace("fp8", "float8_e4m3fn")
    questions = ask_about_key(whole, tokens, Circumstances(**circumstances))  # type: ignore[arg-type]
    return [explain(question.subject, question.call, rows) for question in questions]


def lines_of(answers: list[Explanation]) -> list[int | None]:
    return [answer.row.place.line if answer.row else None for answer in answers]


def words(answer: Explanation) -> str:
    return "\n".join(text for step in answer.steps for text in step.lines)


def test_c01_one_bucket_has_a_wrong_kernel() -> None:
    shape = {"model_dim": "7168", "inter_dim": "512", "expert": "384", "topk": "6"}
    names = {"2": "t32x128x256_gui_fp8", "4": "t32x128x256_w2_gui_xcd4_fp8", "8": "t32x64x256_w3_gui_fp8"}
    lines = [line(token=n, kernelName1=f"flydsl_moe1_afp8_wfp4_bf16_{k}", **shape) for n, k in names.items()]
    answers = asked("gfx950,256,1,7168,512,384,6,…", merge([table(*lines)]), 2, 3, 4, 5, env=BOUND)
    assert lines_of(answers) == [2, 3, 3, 4]
    assert all("_w2_gui_xcd4_fp8" in answer.plan.names[0] for answer in answers[1:3])


def test_c06_ck_tile_misreads_scales_of_narrow_widths() -> None:
    def default(inter_dim: int) -> Explanation:
        key = f"gfx950,256,32,6144,{inter_dim},129,5,Swiglu,bf16,bf16,fp4x2,per_1x32,1,0"
        (answer,) = asked(key, MergedTable(()))
        assert {stage.family for stage in answer.plan.stages} == {"CK-Tile"}
        return answer

    assert [default(n).has_errors for n in (128, 256, 384, 512, 640, 768)] == [True, False] * 3
    assert "misreads scales" in words(default(384))


def test_c19_a_33rd_expert_has_no_row() -> None:
    lines = [
        line(token=str(1 << n), model_dim="7168", inter_dim="2048", expert=e, topk=k, q_dtype_a=FP4)
        for e, k in (("32", "8"), ("33", "8"), ("257", "9"))
        for n in range(16)
    ]
    (answer,) = asked("gfx950,256,64,7168,2048,33,9,Silu,bf16,fp4x2,fp4x2,per_1x32,1,0", merge([table(*lines)]))
    assert answer.match is None
    near = {f"{n.shape.expert}/{n.shape.topk}": n.differs for n in answer.nearest}
    assert near == {"33/8": ("topk",), "257/9": ("expert",), "32/8": ("expert", "topk")}


def test_c21_another_conventions_row_is_not_borrowed(aiter: MergedTable) -> None:
    unfused = "gfx950,256,1,7168,256,256,8,Silu,bf16,fp4x2,fp4x2,per_1x32,1,0"
    fused = asked(unfused.replace("256,8", "257,9"), aiter)[0]
    assert fused.row
    without = merge([table(line(token="1", model_dim="7168", inter_dim="256", expert="257", topk="9", q_dtype_a=FP4))])
    (answer,) = asked(unfused, without)
    assert answer.row is None
    assert answer.plan.names[0] == "flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w2"
    assert "nearest, never borrowed: 7168/256/257/9" in words(answer)


def test_c22_the_masked_slot_is_taken_off_the_width() -> None:
    scaled = {"q_dtype_a": FP8, "q_dtype_w": FP8, "q_type": "QuantType.per_Token"}
    rows = merge([table(line(model_dim="5120", inter_dim="1536", expert="40", topk="8", **scaled))])
    key = "gfx950,256,8,5120,1536,40,8,Silu,bf16,fp8,fp8,per_Token,1,0"

    def width(n: int, version: Version, mask: bool = True) -> Explanation:
        return asked(key, replace(rows, version=version), expert_mask=mask, topk_width=n, version=version)[0]

    now, before = Version(), Version(date(2026, 6, 4))
    assert (width(8, now).call.topk, width(8, now).row) == (7, None)
    assert (width(9, now).call.topk, width(9, now).row is not None) == (8, True)
    assert (width(8, before).call.topk, width(8, before).row is not None) == (8, True)
    assert "the width of topk_ids minus 1 (since 2026-06-05" in words(width(9, now))
    assert "with or without an expert mask (until 2026-06-05" in words(width(8, before))


def test_c25_local_experts_miss_the_global_table_and_may_crash(aiter: MergedTable) -> None:
    key = "gfx950,256,512,4096,2048,64,6,…"
    assert asked(key.replace("64,6", "256,6"), aiter)[0].row
    (answer,) = asked(key, aiter, expert_mask=True)
    assert answer.match is None
    assert "crash is expected: CK has no instance for fp8 activations x fp4 weights" in words(answer)
    for lost in ({"unshuffled": True}, {"without_flydsl": True}):
        (crash,) = asked(key, aiter, expert_mask=True, **lost)
        assert crash.has_errors


def test_c31_the_default_path_as_logged() -> None:
    log = (
        "[aiter] [fused_moe] using 2stage default for (256, 16384, 6144, 256, 257, 9, 'ActivationType.Silu',"
        " 'torch.bfloat16', 'torch.bfloat16', 'torch.bfloat16', 'QuantType.No', True, False)"
    )
    (answer,) = asked(log, MergedTable(()))
    assert answer.row is None
    assert "run_1stage False, block_m 128, ksplit 0" in words(answer)
    assert "estimated m per expert 573" in words(answer)


def test_c32_one_row_leaves_the_other_buckets_on_the_default() -> None:
    blocks = {"q_dtype_a": FP8, "q_dtype_w": FP8, "q_type": "QuantType.per_1x128"}
    rows = merge([table(line(token="64", model_dim="4096", inter_dim="256", expert="288", topk="8", **blocks))])
    key = "gfx950,256,1,4096,256,288,8,Silu,bf16,fp8,fp8,per_1x128,1,0"
    answers = asked(key, rows, 32, 33, 64, 65, 16384)
    assert [answer.row is not None for answer in answers] == [False, True, True, False, False]
    assert [answer.situation.one_stage for answer in answers if answer.row is None] == [False, True, True]


SHAPE = """\
model: demo
tp: 4
csv: demo_untuned_fmoe.csv
gpus: [{gfx: gfx950, cu_num: 256}]
recipe: fp8_block
pad: {inter_dim: 128}
moe:
  - {block: target, shared_experts: separate, tokens: TOKENS}
"""


def statuses(root: Path, tokens: str, *tuned: int, **cells: str) -> dict[int, Status]:
    """Each bucket's status for a shape with tuned rows of the given tokens."""
    blocks = {"q_dtype_a": FP8, "q_dtype_w": FP8, "q_type": "QuantType.per_1x128"}
    dims = {"model_dim": "5120", "inter_dim": "640", "expert": "384", "topk": "6", **blocks, **cells}
    declarations, findings = declared(root, tp4=SHAPE.replace("TOKENS", tokens))
    assert not findings
    rows = merge([table(*(line(token=str(n), **dims) for n in tuned))])
    (coverage,) = cover(deployments(declarations), rows)
    return {cell.bucket: cell.status for cell in coverage.cells}


def test_c29_a_table_of_another_width_covers_nothing(tmp_path: Path) -> None:
    found = statuses(tmp_path, "1..32768", *(1 << n for n in range(16)), inter_dim="1152")
    assert set(found.values()) == {Status.GAP}


def test_c34_small_buckets_are_gaps(tmp_path: Path) -> None:
    found = statuses(tmp_path, "1..32768", *(1 << n for n in range(5, 16)), 96, 192)
    assert [bucket for bucket, status in found.items() if status is Status.GAP] == [1, 2, 4, 8, 16]
    (answer,) = asked("gfx950,256,8,6144,512,257,9,…", merge([table(line(token="32"))]), 5)
    assert answer.row is None
    assert answer.call.bucket == 8


def test_c40_the_missing_shapes_are_named(tmp_path: Path) -> None:
    found = statuses(tmp_path, "[1, 1024, 2048]", 1, 2048)
    gaps = [bucket for bucket, status in found.items() if status is Status.GAP and bucket in (1, 1024, 2048)]
    assert gaps == [1024]


def test_c42_an_architecture_without_facts_is_answered() -> None:
    key = "gfx90a,104,8,6144,512,257,9,Silu,bf16,bf16,bf16,No,1,0"
    (answer,) = asked(key, MergedTable(()))
    assert answer.plan.path == "CK pair"
    with pytest.raises(ValueError, match="no known architecture has 104 compute units"):
        asked(key.removeprefix("gfx90a,"), MergedTable(()))


def test_c47_a_new_family_runs_where_a_row_names_it() -> None:
    kernels = {
        "kernelName1": "flydsl_moe1_abf16_wfp4_bf16_t16x64x128",
        "kernelName2": "flydsl_moe2_abf16_wfp4_bf16_t16x64x128_atomic",
    }
    cells = {"model_dim": "4096", "inter_dim": "256", "expert": "512", "topk": "10", "block_m": "16", "q_dtype_a": BF16}
    key = "gfx950,256,8,4096,256,512,10,Silu,bf16,bf16,fp4x2,per_1x32,1,0"
    assert asked(key, MergedTable(()))[0].plan.path.startswith("CK-Tile pair")
    (answer,) = asked(key, merge([table(line(**cells, **kernels))]), gate_mode="separated")
    assert answer.plan.names == tuple(kernels.values())


def test_c50_bf16_swiglu_runs_ck_tile_until_there_is_a_row() -> None:
    key = "gfx950,256,32,6144,768,129,5,Swiglu,bf16,bf16,fp4x2,per_1x32,1,0"
    (answer,) = asked(key, MergedTable(()), 20)
    assert answer.plan.path.startswith("CK-Tile pair")
    assert answer.call.asked_for.format is Format.BF16
    (many,) = asked(key, MergedTable(()), 300)
    assert "no call with these settings asks for bf16" in words(many)


def test_c58_rows_of_another_activation_format_are_never_reached(tmp_path: Path) -> None:
    lines = [line(token=str(1 << n), model_dim="7168", expert="384", topk="6", q_dtype_a=FP4) for n in range(12)]
    rows = merge([table(*lines)])
    answers = asked("gfx950,256,1,7168,512,384,6,…", rows, *(1 << n for n in range(12)), env=BOUND)
    assert lines_of(answers) == [None] * 12
    assert all("differs in q_dtype_a" in words(answer) for answer in answers)


def test_c59_the_largest_bucket_is_missing(tmp_path: Path) -> None:
    found = statuses(tmp_path, "1..32768", *(1 << n for n in range(15)))
    assert [bucket for bucket, status in found.items() if status is Status.GAP] == [32768, 131072]
    with_largest = statuses(tmp_path, "1..32768", *(1 << n for n in range(16)))
    assert with_largest[131072] is Status.TIER


def test_c66_the_selected_row_is_shown_whatever_the_header(tmp_path: Path) -> None:
    header = [column for column in table(line()).header if column not in ("gfx", "xbf16", "flat")]
    old = table(line(header), header=header, name="old_tuned_fmoe.csv")
    answer = explain("old", call_of_key(row().key), merge([old]))
    assert answer.row
    assert str(answer.row.place) == "old_tuned_fmoe.csv:2"


def test_c68_one_file_replaces_all_other_tables(tmp_path: Path) -> None:
    from moeshapes.tuned_tree import read_tuned_tree

    write(tmp_path / "tuned_fmoe.csv", text(line()))
    own = write(tmp_path / "override.csv", text(line(token="16")))
    alone, family = read_tuned_tree(own, None), read_tuned_tree(tmp_path, None)
    assert alone
    assert family
    key = row().key
    assert family.find(key)
    assert alone.find(key) is None


def test_c94_narrow_bf16_layers_crashed_at_large_token_counts() -> None:
    key = "gfx942,304,32768,4096,192,128,8,Silu,bf16,bf16,bf16,No,1,0"
    assert not asked(key, MergedTable(()))[0].has_errors
    (before,) = asked(key, MergedTable(()), version=Version(date(2025, 11, 1)))
    assert before.has_errors
    assert "192 % 128 = 64" in words(before)


def test_c97_a_width_of_384_had_no_fp4_kernel() -> None:
    key = "gfx950,256,2048,3072,384,256,8,Silu,bf16,fp4x2,fp4x2,per_1x32,1,0"
    (now,) = asked(key, MergedTable(()))
    assert not now.has_errors
    assert "x128x128_atomic" in now.plan.names[1]
    (before,) = asked(key, MergedTable(()), version=Version(date(2026, 3, 5)))
    assert before.has_errors
    assert "384 % 256 = 128" in words(before)


@pytest.mark.parametrize("inter_dim", [192, 384])
def test_c98_there_is_no_kernel_for_narrow_tensor_scaled_fp8(inter_dim: int) -> None:
    key = f"gfx950,256,8192,4096,{inter_dim},192,8,Silu,bf16,fp8,fp8,per_Tensor,1,0"
    answers = asked(key, MergedTable(()), 1, 64, 8192)
    assert any(answer.has_errors for answer in answers)
    assert "a crash is expected: CK's stage 2" in "\n".join(map(words, answers))


def test_c107_the_padded_width_is_looked_up_only_where_serving_pads(tmp_path: Path) -> None:
    def width(text: str, name: str) -> int:
        declarations, findings = declared(tmp_path / name, tp4=text)
        assert not findings
        (deployment,) = deployments(declarations)
        return deployment.call(8).key.shape.inter_dim

    padded = SHAPE.replace("TOKENS", "[8]").replace("fp8_block", "fp8_token")
    assert width(padded, "padded") == 640
    assert width(padded.replace("pad: {inter_dim: 128}\n", ""), "plain") == 576


def test_a_gelu_call_lands_on_a_silu_row(aiter: MergedTable) -> None:
    landed = [
        answer
        for tuned in aiter.rows
        if tuned.key.shape.act_type == "ActivationType.Gelu"
        for answer in [explain("gelu", call_of_key(tuned.key), aiter)]
        if answer.match and not answer.match.own_activation
    ]
    assert len(landed) > 100
    assert "it is tuned for Silu, the call is Gelu" in words(landed[0])
    assert str(landed[0].row.place) in words(landed[0]) if landed[0].row else False


@pytest.mark.parametrize(("tokens", "bucket"), [(65_536, 32768), (200_000, 131072)])
def test_large_token_counts(aiter: MergedTable, tokens: int, bucket: int) -> None:
    (answer,) = asked("gfx950,256,1,6144,512,257,9,Silu,bf16,fp4x2,fp4x2,per_1x32,1,0", aiter, tokens)
    assert answer.call.bucket == bucket
    assert answer.row
    assert answer.row.key.shape.token == 32768
    assert ("tier fallback" in words(answer)) is (bucket == 131072)
