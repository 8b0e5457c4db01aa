"""The stand-in's lookup: what it asks for, what stays in its caches, what it logs, what AITER's own rows give."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import naive_dispatch
import standin
from moeshapes.family import AITER_CONFIGS, merge_order, read_family
from moeshapes.log_line import Lookup, parse_log_line
from moeshapes.recipe import torch_dtype
from moeshapes.runtime.call import RuntimeCall, call_of_key
from moeshapes.runtime.merged import merge
from standin.aiter_of_test import SITUV2, SWIGLU, TOKENS, drawn, fused_moe, problem, row_of, serving, table
from standin.prepared import Arguments, arguments_of

PAIR = ("flydsl_moe1_afp4_wfp4_bf16_t32x128x256_w3_fp4", "flydsl_moe2_afp4_wfp4_bf16_t32x256x256_atomic")
OTHER_PAIR = ("flydsl_moe1_afp4_wfp4_bf16_t32x64x256", "flydsl_moe2_afp4_wfp4_bf16_t32x128x256_reduce")


@contextmanager
def listening() -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("aiter").addHandler(handler)
    yield lines
    logging.getLogger("aiter").removeHandler(handler)


def lookup(call: RuntimeCall) -> Any:
    """What the stand-in answers to a call's lookup."""
    enums, module = import_module("aiter.ops.enum"), import_module("aiter.fused_moe")
    names = torch_dtype(call.format.format, call.gfx), torch_dtype(call.weight, call.gfx)
    a, w = (getattr(torch, name.removeprefix("torch.")) for name in names)
    return module.get_2stage_cfgs(
        module.get_padded_M(call.tokens), call.model_dim, call.inter_dim, call.expert, call.topk_width,
        torch.bfloat16, a, w, getattr(enums.QuantType, call.q_type.value), call.use_g1u1,
        getattr(enums.ActivationType, call.activation.capitalize()), call.doweight_stage1, call.hidden_pad,
        call.intermediate_pad, call.shuffled, call.gate_mode, is_ep=call.expert_mask, has_stage2_bias=call.bias,
    )  # fmt: skip


def names_of(metadata: Any) -> list[str]:
    """The names that the stages are bound to, empty for compiled code's own choice."""
    stages = [stage for stage in (metadata.stage1, metadata.stage2) if stage is not None]
    return [str(next((v for k, v in stage.keywords.items() if k.startswith("kernelName")), "")) for stage in stages]


@pytest.fixture(scope="module")
def files(aiter_configs: Path) -> Sequence[Path]:
    family = read_family(aiter_configs, AITER_CONFIGS, lambda path: path.name)
    return [aiter_configs / file for file in sorted((file for file, _ in family.tuned.items()), key=merge_order)]


def test_every_row_of_aiters_tables(files: Sequence[Path], aiter_configs: Path, tmp_path: Path) -> None:
    """Against an independent walk, which knows nothing of this stand-in; CK's name may be of another activation."""
    rows: dict[tuple[int, int], list[naive_dispatch.Cells]] = {}
    for row in naive_dispatch.read_rows(files):
        rows.setdefault((int(row["model_dim"]), int(row["expert"])), []).append(row)
    family = read_family(aiter_configs, AITER_CONFIGS, lambda path: path.name)
    keys = list(dict.fromkeys(tuned.key for tuned in merge(family.tuned.values()).rows))
    by_device: dict[tuple[str, int], list[RuntimeCall]] = {}
    for key in keys[::3]:
        by_device.setdefault((key.gfx, key.cu_num), []).append(call_of_key(key))
    assert sum(map(len, by_device.values())) > 500
    env = {"AITER_CONFIG_FMOE": os.pathsep.join(map(str, files)), "AITER_LOG_LEVEL": "ERROR"}
    for (gfx, cu_num), calls in by_device.items():
        with standin.installed(gfx=gfx, cu_num=cu_num, merge_into=tmp_path, env=env):
            for call in calls:
                expected = naive_dispatch.answer(call, rows[call.model_dim, call.expert])
                metadata = lookup(call)
                assert (metadata.block_m, metadata.ksplit) == (expected.block_m, expected.ksplit), call
                for found, name in zip(names_of(metadata), expected.names, strict=True):
                    assert name in ("", found), call


ASKED = [
    ("a4w4", {}, {}, TOKENS, "float4_e2m1fn_x2"),
    ("a8w4", {}, {}, 255, "bfloat16"),
    ("a8w4", {}, {}, 256, "float8_e4m3fn"),
    ("a8w4", {}, {"AITER_BF16_FP8_MOE_BOUND": "0"}, 1, "float8_e4m3fn"),
    ("mxfp8", {}, {}, 1, "float8_e4m3fn"),
    ("a16wi4", {}, {}, 1, "bfloat16"),
    ("a16w4", {"activation": SWIGLU}, {}, 255, "bfloat16"),
    ("a16w4", {"activation": SWIGLU}, {}, 256, "float4_e2m1fn_x2"),
    ("a16w4", {"activation": SWIGLU}, {"GPTOSS_SWIGLU_MXFP4_BF16_BOUND": "8"}, 8, "float4_e2m1fn_x2"),
    ("a16w4", {"activation": SITUV2}, {}, 999, "bfloat16"),
    ("a16w4", {"activation": SITUV2}, {"AITER_SITUV2_A8W4": "1", "AITER_SITUV2_A4W4": "1"}, 1, "float8_e4m3fn"),
    ("a16w4", {"activation": SITUV2}, {"AITER_SITUV2_A4W4": "1"}, 1, "float4_e2m1fn_x2"),
    ("int8", {}, {}, 1, "int8"),
]  # fmt: skip


class AskedFor(Exception):  # noqa: N818 - no error
    """Raised instead of a lookup, with the activations' dtype."""


def asked_for(module: ModuleType, arguments: Arguments) -> str:
    def ask(*positional: Any, **_: object) -> None:
        raise AskedFor(str(positional[6]))

    module.get_2stage_cfgs = ask  # type: ignore[attr-defined]
    with pytest.raises(AskedFor) as asked:
        fused_moe(**arguments)
    return str(asked.value)


@pytest.mark.parametrize(("recipe", "changes", "env", "tokens", "dtype"), ASKED)
def test_what_activations_are_asked_for(
    recipe: str, changes: dict[str, Any], env: dict[str, str], tokens: int, dtype: str
) -> None:
    """The true token count decides, not the bucket."""
    layer, call = drawn(problem(recipe, **changes), tokens)
    with standin.installed(env=env):
        module = import_module("aiter.fused_moe")
        arguments = arguments_of(layer, call)
        assert asked_for(module, arguments) == f"torch.{dtype}"


@pytest.mark.parametrize(
    ("tokens", "token"), [(0, 1), (1, 1), (300, 512), (32767, 32768), (131071, 32768), (131072, 131072)]
)
def test_token_tiers(tokens: int, token: int) -> None:
    with standin.installed():
        assert import_module("aiter.fused_moe").get_padded_M(tokens) == token


def forget(*which: str) -> None:
    """Renews some of the three caches."""
    module, core = import_module("aiter.fused_moe"), import_module("aiter.jit.core")
    if "file" in which:
        core.AITER_CONFIGS.get_config_file.cache_clear()
    if "table" in which:
        module.cfg_2stages = None  # type: ignore[attr-defined]
    if "lookup" in which:
        module.get_2stage_cfgs.cache_clear()


@pytest.mark.parametrize("forgotten", [("file", "table"), ("file", "lookup"), ("table", "lookup")])
def test_each_cache_alone_keeps_an_old_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgotten: tuple[str, ...]
) -> None:
    what = problem("a4w4")
    layer, call = drawn(what)
    (tmp_path / "new.csv").write_text(table(row_of(what, *OTHER_PAIR)), encoding="utf-8")
    with serving(tmp_path, row_of(what, *PAIR)) as aiter:
        arguments = arguments_of(layer, call)
        fused_moe(**arguments)
        os.environ["AITER_CONFIG_FMOE"] = str(tmp_path / "new.csv")
        for renewed in (forgotten, ("file", "table", "lookup")):
            forget(*renewed)
            aiter.standin.forget()
            fused_moe(**arguments)
            ran = tuple(launch.name for launch in aiter.standin.launched() if launch.stage)
            assert ran == (PAIR if renewed is forgotten else OTHER_PAIR)


def test_a_variable_read_at_import_is_not_read_again() -> None:
    layer, call = drawn(problem("a16w4"), 8)
    with standin.installed(env={"GPTOSS_SWIGLU_MXFP4_BF16_BOUND": "16"}):
        module, arguments = import_module("aiter.fused_moe"), arguments_of(layer, call)
        os.environ["GPTOSS_SWIGLU_MXFP4_BF16_BOUND"] = "0"
        assert asked_for(module, arguments) == "torch.bfloat16"


def test_lines_of_the_log(tmp_path: Path) -> None:
    what = problem("a4w4")
    layer, call = drawn(what)
    with serving(tmp_path, row_of(what, *PAIR)):
        arguments = arguments_of(layer, call)
        with listening() as lines:
            fused_moe(**arguments)
            fused_moe(**arguments)
        (found,) = filter(None, map(parse_log_line, lines))
        assert isinstance(found, Lookup)
        assert (found.missed, found.key.shape.token, found.key.shape.expert) == (False, TOKENS, what.expert)
        assert f"(kernelName1='{PAIR[0]}', kernelName2='{PAIR[1]}')" in " ".join(lines)
        forget("file", "table", "lookup")
        with listening() as lines, serving(tmp_path):
            fused_moe(**arguments_of(layer, call))
        assert any(line.startswith("run_1stage = False, xbf16 = False, ksplit = ") for line in lines)
        assert any("using heuristic FlyDSL fallback (kn1=" in line for line in lines)
        (found,) = filter(None, map(parse_log_line, lines))
        assert isinstance(found, Lookup)
        assert found.missed


def test_a_label_is_logged_and_not_run(tmp_path: Path) -> None:
    what = problem("a8w4")
    layer, call = drawn(what)
    opus = "opus_moe2_afp8_wfp4_atomic_t16x128x128_sbm32"
    with serving(tmp_path, row_of(what, "cktile_a8w4_bm64", opus)) as aiter, listening() as lines:
        fused_moe(**arguments_of(layer, call))
        ran = [launch.name for launch in aiter.standin.launched() if launch.stage]
    assert any("kernelName1='cktile_a8w4_bm64'" in line for line in lines)
    assert all(name.startswith("flydsl_moe") for name in ran)


def test_a_row_that_biases_throw_away(tmp_path: Path) -> None:
    what = problem("a8w4", bias=True)
    layer, call = drawn(what)
    pair = ("opus_moe1_afp8_wfp4_bf16_t32x256_pair_kw2_m2", "opus_moe2_afp8_wfp4_atomic_t16x128x128_sbm32")
    with serving(tmp_path, row_of(what, *pair)) as aiter, listening() as lines:
        fused_moe(**arguments_of(layer, call))
        assert not {launch.name for launch in aiter.standin.launched()} & {*pair}
        arguments = arguments_of(layer, call) | {"bias1": None, "bias2": None}
        fused_moe(**arguments)
        assert [launch.name for launch in aiter.standin.launched()][-2:] != ["", ""]
        assert {launch.name for launch in aiter.standin.launched()} >= {*pair}
    assert any("Opus stage2 config unsupported (stage2 bias is not supported)" in line for line in lines)


def test_a_tile_that_does_not_divide(tmp_path: Path) -> None:
    """AITER says so once a process, and runs another."""
    what = problem("a8w4", inter_dim=384)
    layer, call = drawn(what)
    pair = ("flydsl_moe1_afp8_wfp4_bf16_t64x256x256_gui", "flydsl_moe2_afp8_wfp4_bf16_t64x128x256_reduce")
    with serving(tmp_path, row_of(what, *pair, block_m=64)) as aiter, listening() as lines:
        for _ in range(2):
            fused_moe(**arguments_of(layer, call))
        symbols = " ".join(launch.symbol for launch in aiter.standin.launched())
    assert "t64x128x256" in symbols
    assert "t64x256x256" not in symbols
    assert [line.partition(" does not divide")[0] for line in lines if "FlyDSL MoE" in line] == [
        "FlyDSL MoE: tile_n=256",
        "FlyDSL MoE: tile_k=256",
    ]


def test_the_shared_merge_cache_is_out_of_reach(tmp_path: Path) -> None:
    layer, call = drawn(problem("fp8_token"))
    two = os.pathsep.join(str(tmp_path / name) for name in ("a.csv", "b.csv"))
    for named in (two, "/tmp/aiter_configs/tuned_fmoe.csv"):
        with standin.installed(env={"AITER_CONFIG_FMOE": named}) as aiter:
            arguments = arguments_of(layer, call)
            with pytest.raises(aiter.standin.StandinRefused, match="cache"):
                fused_moe(**arguments)


def test_a_merge_elsewhere(tmp_path: Path) -> None:
    """Tables of an installed AITER's folder, into a folder of the test's own; the first row of a key wins."""
    what = problem("a4w4")
    models = tmp_path / "aiter" / "configs" / "model_configs"
    models.mkdir(parents=True)
    default = row_of(what, *PAIR)
    (models.parent / "tuned_fmoe.csv").write_text(table(default), encoding="utf-8")
    (models / "other_tuned_fmoe.csv").write_text(table(row_of(what, *OTHER_PAIR, token=8)), encoding="utf-8")
    layer, call = drawn(what)
    with standin.installed(root=tmp_path, merge_into=tmp_path / "merged", env={"AITER_LOG_LEVEL": "ERROR"}) as aiter:
        fused_moe(**arguments_of(layer, call))
        assert [launch.name for launch in aiter.standin.launched() if launch.stage] == [*PAIR]
    assert (tmp_path / "merged" / "tuned_fmoe.csv").exists()


def test_no_flydsl(tmp_path: Path) -> None:
    what = problem("a4w4")
    layer, call = drawn(what)
    with serving(tmp_path, flydsl=False) as aiter:
        fused_moe(**arguments_of(layer, call))
        assert all("kernel_moe_mxgemm" in launch.symbol for launch in aiter.standin.launched() if launch.stage)


def test_a_call_of_one_activation_takes_the_row_of_another(tmp_path: Path) -> None:
    what = problem("a4w4")
    layer, call = drawn(what)
    with serving(tmp_path, row_of(what, *PAIR, act_type="ActivationType.Gelu")) as aiter:
        fused_moe(**arguments_of(layer, call))
        assert [launch.name for launch in aiter.standin.launched() if launch.stage] == [*PAIR]
    with serving(tmp_path, row_of(replace(what, topk=4), *PAIR)) as aiter:
        fused_moe(**arguments_of(layer, call))
        assert [launch.name for launch in aiter.standin.launched() if launch.stage] != [*PAIR]
