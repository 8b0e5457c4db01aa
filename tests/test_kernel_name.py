from __future__ import annotations

import csv
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.kernel_grammar import Part, Template, Value
from moeshapes.kernel_name import MAX_LENGTH, POLICY_FIELDS, TEMPLATES, KernelName, parse
from moeshapes.recipe import Format

_WORDS = st.text("abcXYZ019", min_size=1, max_size=8)


def parsed(name: str) -> KernelName:
    kernel = parse(name)
    assert kernel is not None
    return kernel


def values_of(part: Part) -> st.SearchStrategy[Value]:
    if not part.kind:
        return st.just(True)
    if part.kind == "#":
        return st.integers(0, 99_999)
    if part.kind == "@":
        return _WORDS
    words = [word.replace("#", "3") for word in part.kind.removeprefix("*").split("|")]
    repeated = part.kind.startswith("*")
    return st.lists(st.sampled_from(words), max_size=4).map("".join) if repeated else st.sampled_from(words)


@st.composite
def kernels(draw: st.DrawFn) -> KernelName:
    """A name of any family with any of its optional parts, from the templates' own fields."""
    template = draw(st.sampled_from(TEMPLATES))
    present = [part for part in template.parts if part.name and (not part.optional or draw(st.booleans()))]
    return KernelName(template, tuple((part.name, draw(values_of(part))) for part in present))


@given(kernels())
def test_rendering_and_parsing_are_inverse(kernel: KernelName) -> None:
    assert parse(kernel.render()) == kernel


@given(st.text(max_size=400) | st.from_regex(r"(flydsl|moe_ck2stages|opus|_ZN5aiter)[a-z0-9_]{0,200}", fullmatch=True))
def test_any_text_is_a_name_or_none(text: str) -> None:
    kernel = parse(text)
    assert kernel is None or kernel.render() == text


@given(kernels(), st.data())
def test_every_field_can_be_asked_of_every_kernel(kernel: KernelName, data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(POLICY_FIELDS))
    value = getattr(kernel, field.name)
    assert value is None or isinstance(value, field.type)
    assert value is None or not field.choices or value in field.choices
    if value is not None:
        assert kernel.matches({field.name: value})


@pytest.mark.parametrize("word", ["vs_", "ps_", "pf2_", "1tg_", "flat_", "a"])
def test_no_name_takes_long(word: str) -> None:
    start = time.perf_counter()
    for length in (MAX_LENGTH, MAX_LENGTH + 1):
        assert parse(("_ZN5aiter9fmoe_bf16_noquantBf16_g1u1_" + word * MAX_LENGTH)[:length]) is None
    assert time.perf_counter() - start < 0.05


def test_templates_read_only_what_they_write() -> None:
    template = Template("made_up", 1, "x_{n:#}[_w{w:#}tg][_fast]_{words:*a_|b#_}z")
    assert template.read("x_7_w2tg_fast_a_b12_z") == {"n": 7, "w": 2, "fast": True, "words": "a_b12_"}
    assert template.read("x_7_z") == {"n": 7, "words": ""}
    for wrong in ("x_07_z", "x_7_fast_w2tg_z", "x_7_zz", "x__z", "x_\uff17_z"):
        assert template.read(wrong) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_bnt0_gui_xcd4_fp8",
            {
                "family": "flydsl_moe1",
                "stage": 1,
                "a": Format.FP8,
                "w": Format.FP4,
                "tile_m": 32,
                "tile_n": 128,
                "tile_k": 256,
            }
            | {"waves_per_eu": 2, "bnt": 0, "gui": True, "xcd": 4, "out_quant": "fp8", "kb": 1, "kw": 1, "mode": None},
        ),
        (
            "flydsl_moe1_abf16_wint4_bf16_t16x128x256",
            {"a": Format.BF16, "w": Format.INT4, "bnt": 2, "xcd": 0, "out_quant": None},
        ),
        (
            "flydsl_moe2_layout_afp8_wfp4_bf16_t64x128x256_reduce_nt_sbm128",
            {
                "family": "moe2_layout",
                "stage": 2,
                "mode": "reduce",
                "nt": True,
                "sort_block_m": 128,
                "tile_m": 64,
                "xcd": None,
            },
        ),
        ("flydsl_moe2_afp4_wfp4_bf16_t32x128x256_reduce_bnt2_persist", {"bnt": 2, "persist": True, "sort_block_m": 32}),
        (
            "flydsl_mxmoe_g1_a4w4_16x256x256_f16in_nt",
            {
                "family": "mxmoe_g1",
                "f16in": True,
                "nt": True,
                "a": Format.FP4,
                "out_quant": "fp4",
                "activation": "silu",
            },
        ),
        (
            "flydsl_mxmoe_g2_a4w4_16x256x256_atomic",
            {"family": "mxmoe_g2", "mode": "atomic", "f4out": False, "slot_quant": None},
        ),
        ("flydsl_mxmoe_g2_a4w4_128x256x256_f4out", {"mode": "reduce", "f4out": True, "slot_quant": "fp4"}),
        (
            "moe_ck2stages_gemm1_256x32x64x128_1x4_TypeCast_v1_Nswizzle0_Quant0_MulRoutedWeight1_gelu_B16_B16_B16",
            {
                "family": "ck_gemm",
                "stage": 1,
                "activation": "gelu",
                "doweight_stage1": True,
                "a": Format.BF16,
                "tile_m": 32,
            },
        ),
        (
            "moe_ck2stages_gemm2_256x32x64x64_1x4_TypeCastExpertWeight_v1_Nswizzle0_Quant0_MulRoutedWeight1_I8_I8_B16",
            {"stage": 2, "doweight_stage1": False, "a": Format.INT8, "activation": None},
        ),
        ("cktile_a8w4_bm64", {"family": "cktile", "stage": None, "a": Format.FP8, "w": Format.FP4, "tile_m": 64}),
        (
            "swiglu_mxfp4_bf16_cktile",
            {"family": "cktile_label", "activation": "swiglu", "a": Format.BF16, "w": Format.FP4},
        ),
        (
            "opus_moe1_afp8_wfp4_bf16_t32x384_pair_kw7_m3_fp8",
            {"family": "opus_moe1", "kw": 7, "out_quant": "fp8", "tile_k": None},
        ),
        ("opus_moe1_afp8_wfp4_bf16_t64x384_gs_qgb3_aff64_k1lead_fp8", {"family": "opus_moe1", "stage": 1}),
        (
            "opus_moe2_layout_afp8_wfp4_fp8_t64x256x256_sbm64_rbn3584",
            {"family": "opus_moe2", "mode": "reduce", "slot_quant": "fp8", "sort_block_m": 64},
        ),
        (
            "opus_moe2_afp8_wfp4_atomic_t32x128x256_sbm32_occ1_cache_b2_ws2",
            {"mode": "atomic", "slot_quant": None, "sort_block_m": 32},
        ),
        (
            "_ZN5aiter48fmoe_bf16_blockscaleBf16_g1u1_flat_vs_gelu_1x128E",
            {
                "family": "asm_1stage",
                "stage": 0,
                "a": Format.FP8,
                "xbf16": True,
                "activation": "gelu",
                "sort_block_m": None,
            },
        ),
        (
            "_ZN5aiter46fmoe_bf16_pertokenFp8_g1u1_tkw1_silu_1tg_32x64E",
            {
                "doweight_stage1": True,
                "xbf16": False,
                "sort_block_m": 32,
                "a": Format.FP8,
                "w": Format.FP8,
                "persist": False,
            },
        ),
        (
            "_ZN5aiter49fmoe_stage1_bf16_pertokenInt8_g1u1_64x128_2tg_pf3E",
            {"family": "asm_stage1", "stage": 1, "a": Format.INT8, "w": Format.INT8, "doweight_stage1": False},
        ),
    ],
)
def test_fields(name: str, expected: dict[str, object]) -> None:
    kernel = parsed(name)
    assert {field: getattr(kernel, field) for field in expected} == expected
    assert kernel.corrected == name


@pytest.mark.parametrize(
    "name", ["", "Null", "flydsl_moe3_afp8", "triton_moe1_t16x128x128", "flydsl_mxmoe_g2_a4w4_16x256x256_f4out_nt"]
)
def test_unknown_names_are_none(name: str) -> None:
    assert parse(name) is None


def test_a_wrong_length_prefix_is_parsed_and_corrected() -> None:
    kernel = parsed("_ZN5aiter50fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256E")
    assert kernel.corrected == "_ZN5aiter52fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256E"


def test_policies_match_every_field_they_name() -> None:
    kernel = parsed("flydsl_moe1_afp8_wfp4_bf16_t32x128x256_gui_xcd4_fp8")
    assert kernel.matches({"stage": 1, "out_quant": "fp8"})
    assert kernel.matches({"xcd": 4, "a": "fp8", "gui": True})
    assert not kernel.matches({"stage": 1, "out_quant": "fp4"})
    assert not kernel.matches({"stage": True})
    assert not kernel.matches({"gui": 1})
    assert not kernel.matches({"family": "moe2_layout"})


def names(configs: Path, pattern: str) -> Iterator[tuple[str, str]]:
    for path in sorted(configs.rglob(pattern)):
        with path.open(newline="") as stream:
            for cells in csv.DictReader(stream):
                yield from ((column, name) for column in ("kernelName1", "kernelName2") if (name := cells.get(column)))


def test_every_name_of_aiter_is_parsed_and_rendered_the_same(aiter_configs: Path) -> None:
    tuned = [(column, name) for column, name in names(aiter_configs, "*tuned_fmoe*.csv") if name != "Null"]
    counts = Counter(column for column, _ in tuned)
    assert (counts["kernelName1"], counts["kernelName2"]) == (2402, 2011)
    for _, name in [*tuned, *names(aiter_configs, "tuned_fhmoe.csv"), *names(aiter_configs, "tuned_grouped_fmoe.csv")]:
        kernel = parsed(name)
        assert kernel.render() == name
        assert kernel.corrected == name


def test_each_name_of_aiter_follows_one_template(aiter_configs: Path) -> None:
    for name in {name for _, name in names(aiter_configs, "*tuned_fmoe*.csv")} - {"Null"}:
        assert sum(template.read(name) is not None for template in TEMPLATES) == 1, name


def test_routing_weights_of_names_agree_with_aiters_rows(aiter_configs: Path) -> None:
    for path in sorted(aiter_configs.rglob("*tuned_fmoe*.csv")):
        with path.open(newline="") as stream:
            for cells in csv.DictReader(stream):
                for name in filter(None, map(parse, (cells.get("kernelName1") or "", cells.get("kernelName2") or ""))):
                    assert name.doweight_stage1 in (None, cells["doweight_stage1"] == "1")


def test_policy_fields_are_documented_and_unique() -> None:
    assert len({field.name for field in POLICY_FIELDS}) == len(POLICY_FIELDS)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", field.name) for field in POLICY_FIELDS)
