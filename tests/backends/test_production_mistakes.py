"""Mistakes that a backend for AITER can make, one at a time, and what catches each.

`refused`: AITER or its stand-in does not take the tensors. `wrong`: the references differ. `not run as named` and
`shadowed`: the backend's own account of what ran. None may pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import planted
from jobs import launch
from moeshapes.backends.base import NotRunAsNamedError, ShadowedRowError
from moeshapes.backends.production.backend import ProductionLayer
from moeshapes.backends.production.layout import ScaleLayout, WeightLayout
from moeshapes.verify.lookup import COLUMNS, Lookup, cells_of, row_line
from planted import Plant, before_shuffle, called, each_w1, laid_out, routed, weights
from production import TOKEN, Scaled, aiter_for, declared_uses, judgements, layer_of, lookup_of, row_of

REFUSED, WRONG, NOT_AS_NAMED, SHADOWED, PASSED = "refused", "wrong", "not run as named", "shadowed", "passed"


def use_of(recipe: str, *words: str, without: Sequence[str] = ()) -> Scaled:
    """The first declared use of the recipe with all of these words in its name and none of the others."""
    fitting = (use for use in declared_uses() if use.problem.recipe_name == recipe)
    return next(use for use in fitting if set(words) <= (given := set(use.id.split("-"))) and given.isdisjoint(without))


A4W4 = use_of("a4w4", "silu", without=["ep8"])
A8W4 = use_of("a8w4", "limit10", "shared", "pads0+64")
TOLD_OF_PADS = replace(A8W4, problem=replace(A8W4.problem, pads_as_arguments=True))
NARROW = use_of("a8w4", "limit10", without=["shared"])
TOLD = use_of("a4w4", "swiglu", "passed")
BIASED = use_of("a8w4", "swiglu", "passed")
INT4 = use_of("a16wi4")
SITUV2 = use_of("a8w4", "situv2")
GFX942 = use_of("fp8_token", "gfx942", "silu")
PER_TENSOR = use_of("fp8_tensor")
BLOCKS = use_of("fp8_block", "gfx950", without=["ep8"])
DOWEIGHT = use_of("fp8_token", "doweight")
SHARED_EP = use_of("fp8_token", "ep4", "shared")
EP = use_of("a4w4", "ep8", "shared")


@dataclass(frozen=True)
class Mistake:
    """`plant` makes it; `caught` says by what, and `says` what is then read. Without `row`, no row is verified."""

    name: str
    use: Scaled
    caught: str
    says: str
    plant: Plant = lambda patch: None
    row: Mapping[str, Any] | None = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    lookup: Callable[[Scaled], Lookup] = lookup_of

    @property
    def launch(self) -> Mapping[str, Any] | None:
        return self.row or (None if self.row is None else row_of(self.use.problem))


def behind_another(use: Scaled) -> Lookup:
    key = replace(use.key, shape=replace(use.key.shape, act_type="ActivationType.Gelu"))
    return Lookup(cells_of(use.key), before=(row_line(cells_of(key), OTHER_A8W4),))


OTHER_A8W4 = launch(
    "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui_fp8", "flydsl_moe2_afp8_wfp4_bf16_t32x128x128_atomic", 32
)
WIDE_TILE = launch("flydsl_moe1_afp8_wfp4_bf16_t32x64x256_w3_gui", "flydsl_moe2_afp8_wfp4_bf16_t32x256x256_reduce", 32)
LABEL = launch("cktile_a8w4_bm32", "opus_moe2_afp8_wfp4_fp8_t32x256x256_sbm32_occ4_rbn2240", 32)
OPUS = launch(
    "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui_fp8", "opus_moe2_afp8_wfp4_fp8_t32x256x256_sbm32_occ4_rbn2240", 32
)
FOREIGN_CK = {
    name: str(value).replace("silu", "gelu") if name == "kernelName1" else value
    for name, value in (row_of(PER_TENSOR.problem) or {}).items()
}

PADS_FIRST = planted.pads_first(TOLD.problem.intermediate_pad)
OWN_TABLES = {"root": "tables", "merge_into": "cache"}
UNWRITTEN = {"lies": ("unwritten_pads",)}

MISTAKES = (
    # layouts
    Mistake("gate and up rows one by one", A8W4, WRONG, "off", before_shuffle(each_w1(planted.one_row_in_turn))),
    Mistake("up before gate", A8W4, WRONG, "off", before_shuffle(each_w1(planted.swapped))),
    Mistake("gates not in turn", A8W4, REFUSED, "w1", laid_out(w1=WeightLayout.TILED)),
    Mistake("gates in turn where they are apart", A4W4, REFUSED, "w1", laid_out(w1=WeightLayout.INTERLEAVED)),
    Mistake("scales of gates not in turn", A8W4, REFUSED, "w1_scale", laid_out(w1_scale=ScaleLayout.SEPARATED)),
    Mistake("mark of both weights lost", A4W4, REFUSED, "is_shuffled", weights(planted.unmarked)),
    Mistake("mark of one weight lost", A8W4, REFUSED, "is_shuffled", weights(planted.half_marked)),
    Mistake("experts stacked after the shuffle", A4W4, REFUSED, "w1", weights(planted.copied)),
    Mistake("scales not shuffled", A4W4, REFUSED, "w1_scale", planted.plain_scales),
    Mistake("second weight not shuffled", NARROW, REFUSED, "w2", planted.plain_second_weight),
    Mistake("int4 packed in pairs", INT4, REFUSED, "w1", planted.packed_in_pairs),
    Mistake("int4 scales not in pairs", INT4, REFUSED, "w1_scale", planted.scale_rows_apart),
    # numbers and types
    Mistake("biases in bf16", BIASED, REFUSED, "torch.float32", planted.biases(lambda bias: bias.bfloat16())),
    Mistake("e4m3fn on gfx942", GFX942, REFUSED, "e4m3fn", planted.foreign_fp8, row=None),
    Mistake(
        "scales in bf16", GFX942, REFUSED, "w1_scale",
        weights(lambda w: replace(w, w1_scale=None if w.w1_scale is None else w.w1_scale.bfloat16())),
    ),
    Mistake(
        "e8m0 scales as numbers", A8W4, REFUSED, "w2_scale",
        weights(lambda w: replace(w, w2_scale=None if w.w2_scale is None else w.w2_scale.float())),
    ),
    Mistake(
        "one scale for all experts", PER_TENSOR, REFUSED, "w1_scale",
        weights(lambda w: replace(w, w1_scale=None if w.w1_scale is None else w.w1_scale[:1])),
    ),
    Mistake(
        "block scales transposed", BLOCKS, REFUSED, "w2_scale",
        weights(lambda w: replace(w, w2_scale=None if w.w2_scale is None else w.w2_scale.transpose(1, 2).contiguous())),
    ),
    Mistake("shared expert first", A8W4, WRONG, "off", before_shuffle(planted.shared_first)),
    # pads
    Mistake("pads in the wrong half", TOLD, REFUSED, "pad", before_shuffle(each_w1(PADS_FIRST))),
    Mistake("pads passed twice", TOLD, REFUSED, "pad", called(intermediate_pad=lambda p: 2 * p.intermediate_pad)),
    Mistake("pads exchanged", TOLD, REFUSED, "pad", called(
        intermediate_pad=lambda p: p.hidden_pad, hidden_pad=lambda p: p.intermediate_pad,
    )),
    # arguments
    Mistake("limit not passed", A8W4, WRONG, "off", called(swiglu_limit=None)),
    Mistake("betas not passed", SITUV2, WRONG, "off", called(beta=None, linear_beta=None)),
    Mistake("gate mode not passed", A8W4, REFUSED, "interleaved", called(gate_mode="separated")),
    Mistake("weights in the wrong stage, with a row", DOWEIGHT, NOT_AS_NAMED, "chose", called(doweight_stage1=False)),
    Mistake("weights in the wrong stage, without", DOWEIGHT, WRONG, "off", called(doweight_stage1=False), row=None),
    Mistake("expert ids of 64 bits", A4W4, REFUSED, "topk_ids", routed(planted.wide_ids)),
    # expert parallelism
    Mistake("expert mask off by one", SHARED_EP, WRONG, "off", routed(planted.off_by_one)),
    Mistake("sentinel not masked", SHARED_EP, REFUSED, "expert_mask", routed(planted.sentinel_unmasked)),
    Mistake("no slot for the sentinel", SHARED_EP, REFUSED, "last slot of topk_ids", routed(planted.without_sentinel)),
    Mistake("expert mask left out", EP, REFUSED, "topk_ids", routed(planted.without_mask)),
    # environment and tables
    Mistake("bound not in the environment", A8W4, REFUSED, "AITER_BF16_FP8_MOE_BOUND", settings={"env": {}}),
    Mistake(
        "bound set after the import", TOLD, NOT_AS_NAMED, "chose",
        planted.variable("GPTOSS_SWIGLU_MXFP4_BF16_BOUND", "0"), settings={"env": {}},
    ),
    Mistake(
        "tuning bypassed", A8W4, NOT_AS_NAMED, "chose",
        planted.variable("AITER_BYPASS_TUNE_CONFIG", "1"),
    ),
    Mistake("caches of another arm kept", A8W4, NOT_AS_NAMED, "t32x128x256", planted.caches_kept(OTHER_A8W4)),
    Mistake("merge cache read or written", A8W4, REFUSED, "merge", planted.no_table, settings={"root": "tables"}),
    Mistake("AITER's own tables read", A8W4, NOT_AS_NAMED, "t32x128x256", planted.no_table, settings=OWN_TABLES),
    Mistake("shadowed by another activation's row", A8W4, SHADOWED, "t32x128x256", lookup=behind_another),
    # what AITER does without being asked
    Mistake("label for a kernel", A8W4, NOT_AS_NAMED, "label", row=LABEL),
    Mistake("label that log and lookup repeat", A8W4, NOT_AS_NAMED, "no kernel of", settings={"lies": ("label",)}),
    Mistake("the same, and no log", A8W4, NOT_AS_NAMED, "no kernel of", settings={"lies": ("label", "silent")}),
    Mistake("row thrown away", A8W4, NOT_AS_NAMED, "thrown away", row=OPUS, settings={"lies": ("discarded",)}),
    Mistake("opus with a bias", BIASED, NOT_AS_NAMED, "Opus", row=OPUS),
    Mistake("tile that does not divide", NARROW, NOT_AS_NAMED, "another tile ran", row=WIDE_TILE),
    Mistake("tile replaced without a word", A8W4, NOT_AS_NAMED, "no kernel of", settings={"lies": ("downgraded",)}),
    Mistake("kernel of another activation", PER_TENSOR, NOT_AS_NAMED, "CK chose", row=FOREIGN_CK),
    Mistake("nothing to be seen", A8W4, NOT_AS_NAMED, "none at all", settings={"lies": ("untraced",)}),
    Mistake("padded columns left unwritten", TOLD_OF_PADS, WRONG, "NaN", row=OTHER_A8W4, settings=UNWRITTEN),
)  # fmt: skip


def outcome(mistake: Mistake, prepared: Callable[[], ProductionLayer]) -> tuple[str, str]:
    """What became of it, and what was said."""
    try:
        layer = prepared()
        arm = layer.arm(mistake.launch, TOKEN, mistake.lookup(mistake.use))
        found = judgements(arm, layer, mistake.use.problem)
        arm.launched()
    except NotRunAsNamedError as error:
        return NOT_AS_NAMED, str(error)
    except ShadowedRowError as error:
        return SHADOWED, str(error)
    except (AssertionError, TypeError, ValueError) as error:
        return REFUSED, str(error)
    wrong = [judgement for judgement in found if not judgement.passed]
    if not wrong:
        return PASSED, ""
    worst = wrong[0]
    return WRONG, f"NaN at {worst.where}" if worst.bad_values else f"off by {worst.worst:.3g} of the limit"


def with_tables(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings whose paths are below a folder, where AITER has a table with another row of A8W4's key."""
    if "root" not in settings:
        return dict(settings)
    table = folder / "tables" / "aiter" / "configs" / "tuned_fmoe.csv"
    models = table.parent / "model_configs"
    models.mkdir(parents=True)
    lines = [",".join(COLUMNS), row_line(cells_of(A8W4.key), OTHER_A8W4), ""]
    table.write_text("\n".join(lines))
    (models / "other_tuned_fmoe.csv").write_text(lines[0] + "\n")
    return {name: folder / value if name in ("root", "merge_into") else value for name, value in settings.items()}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: str(mistake.name))
def test_it_is_caught(mistake: Mistake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with aiter_for(mistake.use, **with_tables(mistake.settings, tmp_path)) as backend:
        mistake.plant(monkeypatch)
        caught, said = outcome(mistake, lambda: backend.prepare(layer_of(mistake.use.problem)))
    assert caught == mistake.caught, said
    assert mistake.says in said


def test_the_undeclared_use_passes_without_a_mistake() -> None:
    """The others are tried where all declared uses are."""
    honest = Mistake("none", TOLD_OF_PADS, PASSED, "", row=OTHER_A8W4)
    with aiter_for(TOLD_OF_PADS) as backend:
        assert outcome(honest, lambda: backend.prepare(layer_of(TOLD_OF_PADS.problem))) == (PASSED, "")
    assert {mistake.use for mistake in MISTAKES} - set(declared_uses()) == {TOLD_OF_PADS}


def test_names_are_unlike() -> None:
    assert len({mistake.name for mistake in MISTAKES}) == len(MISTAKES) >= 20
