"""AITER as the backend knows it: the recorded facts against the stand-in always, and against an installed AITER where
there is one (`pytest -m aiter`), so that drift in a new AITER is one clear failure.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import standin
from moeshapes.backends.production.config import VARIABLE
from moeshapes.backends.production.environment import environment_for
from moeshapes.recipe import RECIPES
from standin.aiter_of_test import drawn, problem
from standin.contract import departures, recorded
from standin.prepared import arguments_of

FLYDSL = "aiter.ops.flydsl.moe_kernels"
READY = ("w1", "w2", "w1_scale", "w2_scale")


@pytest.fixture
def installed_aiter() -> ModuleType:
    """The real one; never the stand-in."""
    aiter: ModuleType = pytest.importorskip("aiter", reason="no AITER is installed")
    assert not hasattr(aiter, "standin"), f"{aiter.__file__} is the stand-in, which proves nothing of AITER"
    return aiter


def report(lines: list[str]) -> str:
    return "\n  ".join(["AITER is no longer as tests/standin/contract.yaml records it:", *lines])


def test_the_stand_in_has_the_recorded_facts() -> None:
    with standin.installed():
        found = departures(recorded())
    assert not found, report(found)


@pytest.mark.aiter
def test_the_installed_aiter_has_the_recorded_facts(installed_aiter: ModuleType) -> None:
    flydsl = import_module("aiter.ops.flydsl.utils").is_flydsl_available()
    found = [line for line in departures(recorded()) if flydsl or not line.startswith(FLYDSL)]
    assert not found, report(found)


@pytest.mark.aiter
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_installed_aiter_shuffles_as_the_stand_in(installed_aiter: ModuleType, recipe: str) -> None:
    """Bit by bit, at dims that need no padding: AITER leaves that uninitialised."""
    fnuz = installed_aiter.dtypes.fp8 is torch.float8_e4m3fnuz
    layer, call = drawn(problem(recipe, fnuz=fnuz, inter_dim=512))
    theirs = arguments_of(layer, call)
    with standin.installed(gfx="gfx942" if fnuz else "gfx950"):
        ours = arguments_of(layer, call)
        for name in READY:
            assert same_bits(ours[name], theirs[name]), f"{name} of {recipe} is shuffled otherwise"


def same_bits(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    one, other = (t.contiguous().view(torch.uint8) if t.element_size() == 1 else t for t in (one, other))
    return one.shape == other.shape and torch.equal(one, other.cpu())


# --- the environment

READS = re.compile(r"""(?:environ(?:\.get)?[\[(]|getenv\()\s*["'](?P<name>\w+)["'](?!\] =)""")
CHOOSE = ("aiter.fused_moe", "aiter.jit.utils.chip_info")
"""Where AITER chooses kernels, and where it asks what GPU it chooses them for."""


def read_in(sources: Iterable[Path]) -> set[str]:
    """The environment variables that these modules read."""
    return {found["name"] for source in sources for found in READS.finditer(source.read_text(encoding="utf-8"))}


def kept(names: set[str]) -> set[str]:
    """Those that an undeclared value would stay in."""
    return set(environment_for({}, dict.fromkeys(names, "1")))


def test_the_stand_in_reads_nothing_that_a_use_does_not_declare() -> None:
    names = read_in((standin.HERE / "aiter").rglob("*.py"))
    assert {"GPU_ARCHS", "CU_NUM", "AITER_KSPLIT", "GPTOSS_SWIGLU_MXFP4_BF16_BOUND", VARIABLE} <= names
    assert not kept(names)


@pytest.mark.aiter
def test_the_installed_aiter_reads_nothing_that_a_use_does_not_declare(installed_aiter: ModuleType) -> None:
    names = read_in(Path(str(import_module(name).__file__)) for name in CHOOSE)
    assert "GPU_ARCHS" in names
    assert not kept(names), report(
        [f"{name} is read, and kept from what a worker inherits" for name in sorted(kept(names))]
    )


# --- the check itself


def renamed(module: ModuleType) -> None:
    del module.fused_moe.get_padded_M


def reordered(module: ModuleType) -> None:
    shuffle = module.ops.shuffle
    original = shuffle.shuffle_weight_a16w4
    shuffle.shuffle_weight_a16w4 = lambda src, gate_up, NLane: original(src, NLane, gate_up)  # noqa: N803


def another_default(module: ModuleType) -> None:
    function = module.fused_moe.fused_moe
    function.__defaults__ = (*function.__defaults__[:-1], 0)


def a_new_parameter(module: ModuleType) -> None:
    module.utility.fp4_utils.e8m0_shuffle = lambda scale, layout=None: scale


def another_value(module: ModuleType) -> None:
    module.QuantType.per_1x32._value_ = 30


def a_new_value(module: ModuleType) -> None:
    module.ActivationType._member_map_["Relu2"] = None


def another_dtype(module: ModuleType) -> None:
    module.dtypes.fp4x2 = torch.uint8


def no_cache(module: ModuleType) -> None:
    module.fused_moe.get_2stage_cfgs = module.fused_moe.get_2stage_cfgs.__wrapped__


def a_field_less(module: ModuleType) -> None:
    del module.fused_moe.MOEMetadata.__dataclass_fields__["fuse_quant"]


def a_wrapper_less(module: ModuleType) -> None:
    del module.fused_moe._flydsl_stage1_wrapper


DRIFT: dict[Callable[[ModuleType], None], str] = {
    renamed: "aiter.fused_moe:get_padded_M is gone",
    reordered: "aiter.ops.shuffle:shuffle_weight_a16w4 has other parameters (another order)",
    another_default: "aiter.fused_moe:fused_moe has other parameters (gone: stage2_scatter = None; new: stage2_scatter",
    a_new_parameter: "aiter.utility.fp4_utils:e8m0_shuffle has other parameters (gone: none; new: layout = None)",
    another_value: "aiter:QuantType.per_1x32 is 30, not 3",
    a_new_value: "aiter:ActivationType.Relu2 is new",
    another_dtype: "aiter:dtypes.fp4x2 is torch.uint8, not torch.float4_e2m1fn_x2",
    no_cache: "aiter.fused_moe:get_2stage_cfgs has no cache to clear",
    a_field_less: "aiter.fused_moe:MOEMetadata has the fields",
    a_wrapper_less: "aiter.fused_moe lacks _flydsl_stage1_wrapper",
}


@pytest.mark.parametrize("drift", DRIFT)
def test_drift_is_one_line(drift: Callable[[ModuleType], None]) -> None:
    with standin.installed() as aiter:
        for name in ("fused_moe", "ops.shuffle", "utility.fp4_utils"):
            import_module(f"aiter.{name}")
        drift(aiter)
        (line,) = departures(recorded())
    assert line.startswith(DRIFT[drift])


def test_an_aiter_that_is_not_there_lacks_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = recorded()
    for name in [name for name in sys.modules if name.split(".")[0] == "aiter"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiter", None)
    lines = departures(facts)
    assert len(lines) > sum(len(facts[kind]) for kind in ("signatures", "values", "names"))


def test_the_table_is_about_a_commit() -> None:
    text = (Path(standin.__file__).parent / "contract.yaml").read_text(encoding="utf-8")
    assert text.startswith("# Facts of ROCm/aiter ")
