from __future__ import annotations

from pathlib import Path

import pytest

from moeshapes.expand import Declarations
from moeshapes.findings import Place
from moeshapes.lint import tuned_files_in
from moeshapes.repository import load_declarations
from moeshapes.rules import lint_rows
from moeshapes.select import pairing
from moeshapes.select.pairing import APART, FUSED, ONE_KERNEL, WHOLE, Offer, offers, why_not_paired
from moeshapes.select.profile import Profile, Timed, read_profile
from moeshapes.select.wanted import Wanted
from moeshapes.table import read_table, read_tuned_rows
from profiles import EXAMPLES, STAGE1, STAGE2, kernel_line, write_profile
from small_repository import SHAPE, write_small_repository
from table_text import row

KEY = row().key
LAYOUT = "flydsl_moe2_layout_afp4_wfp4_bf16_t32x128x256_atomic"
CK1 = (
    "moe_ck2stages_gemm1_256x32x128x128_1x4_MulABScaleShuffled_v3_Nswizzle0_Quant3_MulRoutedWeight0_silu"
    "_FP4X2_FP4X2_B16"
)
CK2 = (
    "moe_ck2stages_gemm2_64x32x32x128_1x1_MulABScaleExpertWeightShuffled_v1_Nswizzle0_Quant3_MulRoutedWeight1"
    "_FP4X2_FP4X2_B16"
)
MX1, MX2 = "flydsl_mxmoe_g1_a4w4_32x256x256", "flydsl_mxmoe_g2_a4w4_32x256x256_atomic"
ASM = "_ZN5aiter48fmoe_stage1_bf16_pertokenFp8_g1u1_32x256_2tg_pf3E"
OPUS = "opus_moe2_layout_afp8_wfp4_fp8_t64x256x256_sbm64_rbn3584"


def timed(stage: str, kernel: str, us: float = 5.0, block_m: int = 32, v2: bool | None = False) -> Timed:
    return Timed(KEY, stage, block_m, 0, us, kernel, "1.0%", 0, v2, Place("p.csv", 2))


def fits(first: str, second: str, v2: tuple[bool | None, bool | None] = (False, False)) -> bool:
    return not why_not_paired(timed("stage1", first, v2=v2[0]), timed("stage2", second, v2=v2[1]))


@pytest.mark.parametrize(
    ("first", "second"),
    [(STAGE1, STAGE2), (f"{STAGE1}_fp4", STAGE2), (f"{STAGE1}_fp4", CK2), (STAGE1, CK2), (CK1, STAGE2), (MX1, MX2)],
)
def test_what_goes_together(first: str, second: str) -> None:
    assert fits(first, second)


@pytest.mark.parametrize(
    ("first", "second", "v2"),
    [
        (STAGE1, LAYOUT, (True, True)),  # v2 reads what only a fused stage 1 writes
        (f"{STAGE1}_fp4", LAYOUT, (False, True)),  # the fused stage 1 was timed with rows in the tokens' order
        (f"{STAGE1}_fp4", STAGE2, (True, False)),
        (f"{STAGE1}_fp8", STAGE2, (False, False)),  # quantised to what stage 2 does not read
        (STAGE1, OPUS, (None, None)),
        (MX1, STAGE2, (False, False)),
        (STAGE1, MX2, (False, False)),
        (ASM, "flydsl_moe2_afp8_wfp8_bf16_t32x128x256_atomic", (False, False)),
        ("a_kernel_of_tomorrow", STAGE2, (False, False)),
    ],
)
def test_what_does_not(first: str, second: str, v2: tuple[bool | None, bool | None]) -> None:
    assert not fits(first, second, v2)


def test_a_fused_stage_1_and_v2_go_together_and_where_the_tuner_does_not_tell_too() -> None:
    assert fits(f"{STAGE1}_fp4", LAYOUT, (True, True))
    assert fits(f"{STAGE1}_fp4", LAYOUT, (None, None))


def test_blocks_of_other_sizes_do_not() -> None:
    assert why_not_paired(timed("stage1", STAGE1), timed("stage2", STAGE2, block_m=64)) == "block_m differs"


def test_every_published_pair_goes_together(aiter_configs: Path) -> None:
    rows = [each for path in tuned_files_in(aiter_configs) for each in read_tuned_rows(read_table(path))]
    pairs = [each for each in rows if each.kernel2 and not each.run_1stage]
    assert len(pairs) > 1900
    for each in pairs:
        first, second = (
            timed(stage, name, v2=None) for stage, name in zip("12", (each.kernel1, each.kernel2), strict=True)
        )
        assert why_not_paired(first, second) == ""


# --- offers


@pytest.fixture
def declarations(tmp_path: Path) -> Declarations:
    return load_declarations(write_small_repository(tmp_path))[0]


def offered(profile: Profile, declarations: Declarations, top: int = 3, wanted: Wanted | None = None) -> list[Offer]:
    return offers([profile], declarations, top, (wanted or Wanted()).has)


def example(name: str) -> Profile:
    return read_profile(EXAMPLES / "positive" / f"{name}.csv", f"{name}.csv")


def test_the_cheapest_of_each_kind_are_offered_and_other_keys_are_not(declarations: Declarations) -> None:
    """The example has faster kernels for gfx942 and for 4 tokens, which no shape declares."""
    (offer,) = offered(example("kernels"), declarations, top=2)
    assert (offer.key.gfx, offer.key.cu_num, offer.key.shape.token) == ("gfx950", 256, 8)
    found = [(each.times, each.row.us, each.source) for each in offer.candidates]
    assert found == [
        (APART, 6.5, "kernels.csv:2+6"),
        (APART, 7.0, "kernels.csv:2+7"),
        (FUSED, 9.25, "kernels.csv:4+6"),
        (FUSED, 9.75, "kernels.csv:4+7"),
    ]


def test_what_is_offered_has_no_error_and_adds_up(declarations: Declarations) -> None:
    for name in ("kernels", "older", "dumped", "pairs"):
        for offer in offered(example(name), declarations):
            for each in offer.candidates:
                assert round(each.row.us1 + each.row.us2, 4) == each.row.us
                severe = [found for found in lint_rows([each.row], declarations) if found.rule.severity == "error"]
                assert severe == []
                missing = [found.rule.id for found in lint_rows([each.row], declarations) if found.rule.id == "MOE161"]
                assert name == "pairs" or missing == []


def test_pairs_that_the_tuner_has_formed_are_taken_as_they_are(declarations: Declarations) -> None:
    (offer,) = offered(example("pairs"), declarations)
    assert [(each.times, each.row.us, each.source) for each in offer.candidates] == [
        (WHOLE, 9.0, "pairs.csv:3"),
        (WHOLE, 10.0, "pairs.csv:2"),
    ]


def test_only_what_is_asked_for_is_offered(declarations: Declarations) -> None:
    assert offered(example("kernels"), declarations, wanted=Wanted(gfx="gfx942")) == []
    assert offered(example("kernels"), declarations, wanted=Wanted(cu_num=304)) == []
    assert offered(example("kernels"), declarations, wanted=Wanted(selectors=("token=1",))) == []
    (offer,) = offered(example("kernels"), declarations, wanted=Wanted(selectors=("token=1", f"kernelName1={STAGE1}")))
    assert {each.row.kernel1 for each in offer.candidates} == {STAGE1}


def test_a_bad_selector_is_a_finding() -> None:
    (finding,) = Wanted(selectors=("tokens=8",)).faults
    assert "did you mean `token`?" in finding.message
    assert [found.rule.id for found in Wanted(selectors=("7",)).faults] == ["MOE131"]


def test_kernels_that_a_policy_denies_do_not_hide_the_others(tmp_path: Path) -> None:
    deny = SHAPE + "kernels:\n  deny:\n    - {match: {xcd: 4}, reason: NaN}\n"
    write_small_repository(tmp_path)
    (tmp_path / "shapes/tiny/tp2.yaml").write_text(deny)
    declarations, findings = load_declarations(tmp_path)
    assert not findings
    denied = [f"{STAGE1.removesuffix('_w2')}_w{w}_xcd4" for w in (1, 2, 3, 4)]
    lines = [kernel_line("stage1", name, n) for n, name in enumerate(denied, 1)]
    lines += [kernel_line("stage1", STAGE1, 9), kernel_line("stage2", STAGE2, 4)]
    profile = read_profile(write_profile(tmp_path / "p.csv", *lines), "p.csv")
    (offer,) = offered(profile, declarations, top=1)
    assert [each.row.kernel1 for each in offer.candidates] == [STAGE1]
    assert sum(offer.refused.values()) == len(denied)


def test_kernels_that_computed_nothing_do_not_hide_the_others(
    declarations: Declarations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dump of candidates has those too that the tuner refused, fast as they are."""
    monkeypatch.setattr(pairing, "MOST_TRIED", 4)
    wrong = [f"{STAGE1.removesuffix('_w2')}_w{w}" for w in (1, 3, 4)]
    lines = [kernel_line("stage1", name, n, err="1.0") for n, name in enumerate(wrong, 1)]
    lines += [kernel_line("stage2", f"{STAGE2}_persist", 1, err="100.0%"), kernel_line("stage2", STAGE2, 4)]
    lines += [kernel_line("stage1", STAGE1, 9)]
    profile = read_profile(write_profile(tmp_path / "p.csv", *lines), "p.csv")
    (offer,) = offered(profile, declarations, top=1)
    assert [(each.row.kernel1, each.row.kernel2) for each in offer.candidates] == [(STAGE1, STAGE2)]
    assert offer.refused == {"MOE163 err-too-high": 4}


def test_one_kernel_of_both_stages_stands_alone(tmp_path: Path) -> None:
    """One of another recipe than is declared is refused, and counted."""
    write_small_repository(tmp_path)
    shape = tmp_path / "shapes/tiny/tp2.yaml"
    shape.write_text(SHAPE.replace("recipe: a4w4", "recipe: fp8_block"))
    declarations, _ = load_declarations(tmp_path)
    fp8 = {"q_dtype_a": "torch.float8_e4m3fn", "q_dtype_w": "torch.float8_e4m3fn", "q_type": "QuantType.per_1x128"}
    name = "_ZN5aiter52fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256E"
    mx = "_ZN5aiter50fmoe_bf16_pertokenMXfp4_g1u1_flat_novs_silu_16x128E"
    lines = [kernel_line("asm_1stage", name, 20, **fp8), kernel_line("asm_1stage_xbf16", mx, 2, block_m=16, **fp8)]
    profile = read_profile(write_profile(tmp_path / "p.csv", *lines), "p.csv")
    (offer,) = offered(profile, declarations)
    (only,) = offer.candidates
    assert (only.times, only.row.run_1stage, only.row.kernel2, only.row.us2) == (ONE_KERNEL, True, "", 0.0)
    assert sum(offer.refused.values()) == 1
