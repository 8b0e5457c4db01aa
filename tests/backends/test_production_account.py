"""What AITER launched is told from what a row names: by its choice, by what it says, by the kernels' symbols."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs import MXMOE, launch
from moeshapes.backends.production.account import departures
from moeshapes.backends.production.symbols import is_launched
from moeshapes.backends.production.witness import Choice, Chosen, Question, Witness, choice_of
from moeshapes.family import AITER_CONFIGS, read_family
from moeshapes.kernel_name import LABEL_FAMILIES, parse
from moeshapes.runtime.merged import merge
from process import environment

FIRST, SECOND = "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_gui", "flydsl_moe2_afp8_wfp4_bf16_t32x128x256_reduce"
ROW = launch(FIRST, SECOND, block_m=32)
SYMBOLS = (
    "opus_moe_sorting",
    "mfma_moe1_silu_mul_afp8_wfp4_bf16_t32x128x256_pm1_async_gui_v33",
    "mfma_moe2_afp8_wfp4_bf16_cshuffle_t32x128x256_vscale_fix3_fp4opt_v1_pm1_acc0",
)
FLYDSL = Choice((Chosen("_flydsl_stage1_wrapper", FIRST), Chosen("_flydsl_stage2_wrapper", SECOND)), 32, 0, False, 0)


def witness(choice: Choice | None = FLYDSL, lines: tuple[str, ...] = (), symbols: tuple[str, ...] = SYMBOLS) -> Witness:
    library: Any = None
    choices = {} if choice is None else {choice: Question((), {})}
    return Witness(library, choices, list(lines), {8: symbols} if symbols else {})


def changed(**changes: Any) -> Choice:
    fields = {name: getattr(FLYDSL, name) for name in ("stages", "block_m", "ksplit", "xbf16", "flat")}
    return Choice(**{**fields, **changes})


def test_a_row_that_ran_has_nothing_against_it() -> None:
    assert departures(ROW, witness()) == []


HEURISTIC = Chosen("_flydsl_stage1_wrapper", "flydsl_moe1_afp8_wfp4_bf16_t32x128x256_w2_bnt0_gui")


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (witness(choice=None), "no lookup of AITER's was seen"),
        (witness(symbols=()), "no call was traced"),
        (witness(changed(stages=(HEURISTIC, FLYDSL.stages[1]))), f"stage 1: the row names `{FIRST}`, AITER chose"),
        (witness(changed(stages=(Chosen("fused_moe_1stage", ""),))), "the row names 2 kernels, AITER chose"),
        (witness(changed(block_m=64)), "the row has block_m 32, AITER took 64"),
        (witness(changed(ksplit=2)), "the row has ksplit 0, AITER took 2"),
        (witness(lines=("[fused_moe] discarding Opus tuned config for …",)), "the row was thrown away"),
        (witness(lines=("Opus stage2 config unsupported (is_ep)",)), "the row was thrown away"),
        (witness(lines=("no tuned FlyDSL config for …, using heuristic FlyDSL fallback",)), "FlyDSL's fallback ran"),
        (witness(lines=("no tuned FlyDSL config for …, using untuned a16wi4 fallback",)), "FlyDSL's fallback ran"),
        (witness(lines=("FlyDSL MoE: tile_k=256 does not divide inter_dim=640",)), "another tile ran"),
        (witness(lines=("[aiter WARNING] ck kernel not found: moe_ck2stages_…",)), "CK chose another kernel"),
        (witness(lines=("tuned config found for … but is_shuffled=False.",)), "the weights' mark was lost"),
        (witness(symbols=SYMBOLS[:2]), f"no kernel of `{SECOND}` was seen"),
        (witness(symbols=("memset",)), f"no kernel of `{FIRST}` was seen, but memset at 8 tokens"),
        (witness(symbols=tuple(name.replace("t32x128x256", "t32x64x256") for name in SYMBOLS)), "no kernel of"),
        (witness(symbols=tuple(name.replace("_acc0", "") for name in SYMBOLS)), f"no kernel of `{SECOND}` was seen"),
    ],
)
def test_whatever_else_ran_is_told(seen: Witness, said: str) -> None:
    assert any(reason.startswith(said) for reason in departures(ROW, seen)), departures(ROW, seen)


def test_each_departure_is_told_once() -> None:
    lines = ("FlyDSL MoE: tile_k=256 does not divide",) * 3
    assert len(departures(ROW, witness(lines=lines))) == 1


def test_a_label_is_no_kernel_in_stage_1_whatever_ran() -> None:
    row = launch("cktile_a8w4_bm32", "cktile_a8w4_bm32", block_m=32)
    pair = (Chosen("cktile_moe_stage1", ""), Chosen("cktile_moe_stage2", ""))
    reasons = departures(row, witness(changed(stages=pair), symbols=("MoeFlatmmKernel",)))
    assert reasons == [
        "stage 1: the row names `cktile_a8w4_bm32`, a label that is no kernel, AITER chose cktile_moe_stage1"
    ]


@pytest.mark.parametrize(("block_m", "as_named"), [(32, True), (64, False)])
def test_in_stage_2_it_chooses_the_path_and_block_m_the_kernel(block_m: int, as_named: bool) -> None:
    row = launch(FIRST, "cktile_a8w4_bm32", block_m=block_m)
    pair = (FLYDSL.stages[0], Chosen("cktile_moe_stage2", ""))
    seen = witness(changed(stages=pair, block_m=block_m), symbols=(*SYMBOLS, "MoeFlatmmKernel"))
    assert (departures(row, seen) == []) is as_named


def test_one_stage_rows_name_one_kernel_and_their_columns_count() -> None:
    name = "_ZN5aiter43fmoe_bf16_pertokenMXfp4_g1u1_vs_silu_16x512E"
    row = launch(name, "Null", block_m=1, run_1stage=1, xbf16=1, flat=1)
    chosen = Choice((Chosen("fused_moe_1stage", name),), 1, 0, True, 1)
    assert departures(row, witness(chosen, symbols=("aiter::" + name[10:-1],))) == []
    sorted_by_host = Choice(chosen.stages, 1, 0, True, 0)
    assert departures(row, witness(sorted_by_host, symbols=(name,))) == ["the row has flat 1, AITER took 0"]


def test_the_tile_of_an_mxmoe_row_is_its_names() -> None:
    row = launch(*MXMOE, block_m=32)
    stages = (Chosen("_mxfp4_a4w4_stage1_fw", MXMOE[0]), Chosen("_mxfp4_a4w4_stage2_fw", MXMOE[1]))
    symbols = ("gemm1_a4w4_port_h7168_i512_ne385_bm16_iq_sep", "gemm2_a4w4_port_ne385_h7168_i512_bm16_atomic")
    assert departures(row, witness(Choice(stages, 16, 0, False, 0), symbols=symbols)) == []
    split = witness(Choice(stages, 16, 2, False, 0), symbols=symbols)
    assert departures(row, split) == ["the row has ksplit 0, AITER took 2"]


def test_a_choice_is_read_from_aiters_metadata() -> None:
    def wrapper() -> None: ...

    def partial(**keywords: object) -> SimpleNamespace:
        return SimpleNamespace(func=wrapper, keywords=keywords)

    metadata = SimpleNamespace(
        stage1=partial(kernelName="one"), stage2=partial(kernelName2="two"), block_m=32.0, ksplit=0, run_1stage=0
    )
    assert choice_of(metadata) == Choice((Chosen("wrapper", "one"), Chosen("wrapper", "two")), 32, 0, False, 0)
    one = SimpleNamespace(stage1=partial(kernelName="one", xbf16=True, flat=1), stage2=None, block_m=1, ksplit=0)
    assert choice_of(one) == Choice((Chosen("wrapper", "one"),), 1, 0, True, 1)
    unnamed = SimpleNamespace(stage1=wrapper, stage2=partial(kernelName=float("nan")), block_m=16, ksplit=2)
    assert choice_of(unnamed).stages == (Chosen("wrapper", ""), Chosen("wrapper", ""))


EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "symbols"


def examples(file: str) -> list[tuple[str, str]]:
    """Names and symbols, which may have blanks."""
    lines = (EXAMPLES / file).read_text(encoding="utf-8").splitlines()
    pairs = (line.partition(" ") for line in lines if not line.startswith("#"))
    return [(name, symbol) for name, _, symbol in pairs]


KERNELS = dict(examples("launched.txt"))


@pytest.mark.parametrize("name", KERNELS)
def test_a_symbol_is_known_for_its_kernels(name: str) -> None:
    parsed = parse(name)
    assert parsed is not None
    assert is_launched(parsed, ["memset", KERNELS[name]])
    others = [symbol for other, symbol in KERNELS.items() if other != name and not _same_kind(other, name)]
    assert not is_launched(parsed, others)


def _same_kind(one: str, other: str) -> bool:
    """CK and opus do not tell their instances apart."""
    return one.partition("_")[0] == other.partition("_")[0] and one.startswith(("moe_ck", "opus"))


@pytest.mark.parametrize(("name", "symbol"), examples("others.txt"))
def test_a_kernel_of_another_tile_or_kind_is_another(name: str, symbol: str) -> None:
    parsed = parse(name)
    assert parsed is not None
    assert not is_launched(parsed, [symbol])


def test_every_published_kernel_has_a_symbol(aiter_configs: Path) -> None:
    """No name that AITER publishes is of a family whose symbols are not known."""
    rows = merge(read_family(aiter_configs, AITER_CONFIGS, str).tuned.values()).rows
    names = {name for row in rows for name in (row.kernel1, row.kernel2) if name}
    families = {parsed.family for parsed in map(parse, names) if parsed}
    known = {parsed.family for parsed in map(parse, KERNELS) if parsed}
    assert families <= known | LABEL_FAMILIES


OVERHEARING = """
import json, os
from moeshapes.backends.production.standard_error import overheard
lines = []
os.write(2, b"before\\n")
with overheard(lines):
    os.write(2, b"[aiter WARNING] ck kernel not found: a\\nlast")
os.write(2, b"\\nafter\\n")
print(json.dumps(lines))
"""


@pytest.mark.parametrize("is_file", [True, False])
def test_what_compiled_code_writes_is_overheard_and_not_lost(is_file: bool, tmp_path: Path) -> None:
    """Standard error as a worker has it, a file, and as a shell's pipe."""
    command = [sys.executable, "-c", OVERHEARING]
    with (tmp_path / "log").open("w+b") as log:
        stderr = log if is_file else subprocess.PIPE
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, env=environment(), check=True)
        log.seek(0)
        written = log.read() if is_file else done.stderr
    said = ["[aiter WARNING] ck kernel not found: a", "last"]
    assert json.loads(done.stdout) == said
    assert written.decode().splitlines() == ["before", *said, "after"]
