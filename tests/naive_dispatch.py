"""AITER's dispatch once more, as one walk from top to bottom: no tables, no index, no parser of names. Slow and plain.

It takes a call's facts apart by itself, scans rows as csv gives them, and answers with what runs.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moeshapes.recipe import Format, QType
from moeshapes.runtime.call import RuntimeCall

Cells = dict[str, str]


@dataclass(frozen=True)
class Answer:
    """The line that serves the call (`file:line`, empty for none), the step of AITER's order, and what is launched."""

    row: str
    step: int
    names: tuple[str, ...]
    block_m: int
    ksplit: int


def read_rows(files: Iterable[Path]) -> list[Cells]:
    """The rows of tuned tables in the order given, with `place`, and gfx where the table has none."""
    rows = []
    for path in files:
        with path.open(newline="", encoding="utf-8") as stream:
            for number, cells in enumerate(csv.DictReader(stream), 2):
                row = {name: text or "" for name, text in cells.items() if name and not isinstance(text, list)}
                row.setdefault("gfx", "gfx950" if row["cu_num"] == "256" else "gfx942")
                rows.append({**row, "place": f"{path.name}:{number}"})
    return rows


def answer(call: RuntimeCall, rows: Sequence[Cells]) -> Answer:
    a = activations(call)
    token = padded(call.tokens)
    row = scan(call, a, token, rows)
    if row is None and token == 131072:
        row = scan(call, a, 32768, rows)
    if row is not None and thrown_away(call, row):
        row = None
    return launch(call, a, token, row)


def activations(call: RuntimeCall) -> str:
    """q_dtype_a as a short name."""
    if call.given:
        return call.given.value
    weight = call.weight.value
    env = call.env
    if call.gfx == "gfx1250":
        return "fp8" if env.get("AITER_FORCE_A8W4") == "1" else "fp4"
    if call.q_type is not QType.PER_1X32:
        return weight
    if weight == "int4":
        return "bf16"
    if weight == "fp8":
        return "fp8"
    if call.activation == "situv2":
        if env.get("AITER_SITUV2_A8W4") == "1":
            return "fp8"
        return "fp4" if env.get("AITER_SITUV2_A4W4") == "1" else "bf16"
    if call.activation == "swiglu" and call.gate_mode == "separated":
        return "bf16" if call.tokens < int(env.get("GPTOSS_SWIGLU_MXFP4_BF16_BOUND", "256")) else "fp4"
    if call.activation == "swiglu" or call.gate_mode == "interleave":
        if call.gfx != "gfx950" or call.tokens < int(env.get("AITER_BF16_FP8_MOE_BOUND", "256")):
            return "bf16"
        return "fp8"
    return "fp4"


def padded(tokens: int) -> int:
    if tokens >= 131072:
        return 131072
    size = 1
    while size < tokens and size < 32768:
        size *= 2
    return size


def spelled(name: str, gfx: str) -> str:
    if name == "fp8":
        return "torch.float8_e4m3fnuz" if gfx == "gfx942" else "torch.float8_e4m3fn"
    words = {"bf16": "bfloat16", "fp4": "float4_e2m1fn_x2", "int8": "int8", "int4": "int4"}
    return f"torch.{words[name]}"


def topk_of(call: RuntimeCall) -> int:
    return call.topk_width - 1 if call.expert_mask else call.topk_width


def scan(call: RuntimeCall, a: str, token: int, rows: Sequence[Cells]) -> Cells | None:
    """The first row of the key, whatever its activation."""
    numbers = {
        "token": token, "cu_num": call.cu_num, "model_dim": call.model_dim, "inter_dim": call.inter_dim,
        "expert": call.expert, "topk": topk_of(call), "use_g1u1": int(call.use_g1u1),
        "doweight_stage1": int(call.doweight_stage1),
    }  # fmt: skip
    texts = {
        "gfx": call.gfx, "dtype": call.dtype, "q_dtype_a": spelled(a, call.gfx),
        "q_dtype_w": spelled(call.weight.value, call.gfx), "q_type": f"QuantType.{call.q_type.value}",
    }  # fmt: skip
    for row in rows:
        same_numbers = all(row[name] == str(number) for name, number in numbers.items())
        if same_numbers and all(row[name] == text for name, text in texts.items()):
            if row.get("_tag") == "flydsl_fallback":
                continue
            return row
    return None


def thrown_away(call: RuntimeCall, row: Cells) -> bool:
    first, second = row["kernelName1"], row["kernelName2"]
    if int(call.env.get("AITER_BYPASS_TUNE_CONFIG", "0")) != 0:
        return True
    if not (first.startswith("opus_") or second.startswith("opus_")):
        return False
    if not call.shuffled:
        return True
    if first.startswith("opus_") and call.activation == "gelu":
        return True
    if second.startswith("opus_"):
        block = int(second.partition("_sbm")[2].partition("_")[0])
        return call.gfx != "gfx950" or call.expert_mask or call.bias or block != int(row["block_m"])
    return False


def launch(call: RuntimeCall, a: str, token: int, row: Cells | None) -> Answer:
    first = row["kernelName1"] if row else ""
    second = row["kernelName2"] if row else ""
    second = "" if second == "Null" else second
    place = row["place"] if row else ""
    one_stage = row["run_1stage"] == "1" if row else default_one_stage(call, a, token)
    block_m = int(row["block_m"]) if row else default_block_m(call, token, one_stage)
    ksplit = int(row["ksplit"]) if row else default_ksplit(call, token, one_stage)
    if row and call.env.get("AITER_KSPLIT") == "-1":
        ksplit = 0
    mx = call.q_type is QType.PER_1X32
    w = call.weight.value
    by_tokens = 16 if token < 2048 else 32 if token < 16384 else 64

    if "flydsl_mxmoe_g" in first or "flydsl_mxmoe_g" in second:
        if "flydsl_mxmoe_g1_a4w4_" in first:
            block_m = int(first.removeprefix("flydsl_mxmoe_g1_a4w4_").split("x")[0])
        return Answer(place, 1, (first, second), block_m, ksplit)
    if one_stage:
        return Answer(place, 2, (first,), block_m, ksplit)
    named1 = first.startswith("flydsl_")
    named2 = second.startswith("flydsl_")
    if first.startswith("opus_moe1_") or ((named1 or named2) and call.flydsl):
        if not named1 and not first.startswith("opus_moe1_"):
            first = ck_name(first, call)
        if second.startswith("cktile_"):
            second = ""
        elif not named2 and not second.startswith("opus_"):
            second = ck_name(second, call)
        return Answer(place, 3, (first, second), block_m, ksplit)
    if call.gate_mode == "interleave" and mx and call.activation == "swiglu" and w != "fp8":
        return Answer(place, 4, ("", ""), 32 if a == "fp8" else by_tokens, ksplit)
    if mx and w == "int4" and call.flydsl:
        names = (
            f"flydsl_moe1_abf16_wint4_bf16_t{by_tokens}x128x128",
            f"flydsl_moe2_abf16_wint4_bf16_t{by_tokens}x128x128_atomic",
        )
        return Answer(place, 5, names, by_tokens, 0)
    usable = mx and call.shuffled and call.use_g1u1 and not call.doweight_stage1 and call.flydsl
    if usable and (
        (call.activation == "situv2" and a == "bf16" and w == "fp4")
        or (
            a in ("fp4", "fp8")
            and w in ("fp4", "fp8")
            and (call.activation in ("swiglu", "situv2") or call.env.get("AITER_FLYDSL_FORCE", "1") == "1")
        )
    ):
        return flydsl_fallback(call, a, token, place)
    shuffled_fp4 = mx and w == "fp4" and call.shuffled
    if shuffled_fp4 and (call.activation != "swiglu" or a != "fp4"):
        if call.activation == "swiglu" and a == "bf16":
            return Answer(place, 7, ("", ""), by_tokens, max(ksplit, 2))
        if ksplit > 1:
            return Answer(place, 7, ("", ""), by_tokens, ksplit)
    if call.activation == "swiglu" and w == "fp4" and mx and not first:
        return Answer(place, 7, ("", ""), by_tokens, max(ksplit, 2))
    if "ck2stages" in first or (
        not first and ((call.q_type is QType.PER_1X128 and call.doweight_stage1) or w in ("bf16", "fp4", "fp8"))
    ):
        if second.startswith("cktile_"):
            second = ""
        elif not second.startswith("opus_"):
            second = ck_name(second, call)
        return Answer(place, 8, (ck_name(first, call), second), block_m, ksplit)
    if block_m not in (16, 32, 64, 128):
        block_m = 16 if block_m < 16 else 32 if block_m < 32 else 64 if block_m < 64 else 128
    if second.startswith("cktile_"):
        second = ""
    elif not second.startswith("opus_"):
        second = ck_name(second, call)
    return Answer(place, 9, (first, second), block_m, ksplit)


def ck_name(name: str, call: RuntimeCall) -> str:
    """What CK's module of the call's activation finds: nothing of another activation, nothing that is not CK's."""
    if not name.startswith("moe_ck2stages_"):
        return ""
    others = {"silu", "gelu", "swiglu"} - {call.activation}
    return "" if any(f"_{other}_" in name for other in others) else name


def flydsl_fallback(call: RuntimeCall, a: str, token: int, place: str) -> Answer:
    if token < 2048:
        tile, first, second = 32, "_w2", "_bnt2"
    elif token < 4096:
        tile, first, second = 64, "_w3_bnt0", ""
    elif token < 16384:
        tile, first, second = 128, "_w2_bnt0", ""
    else:
        tile, first, second = 64, "_w4_bnt0", ""
    if a == "fp8":
        first += "_gui"
    out = "bf16" if call.dtype == "torch.bfloat16" else "f16"
    k = 128 if call.inter_dim % 256 else 256
    kind = f"a{a}_w{call.weight.value}_{out}"
    names = (f"flydsl_moe1_{kind}_t{tile}x128x256{first}", f"flydsl_moe2_{kind}_t{tile}x128x{k}_atomic{second}")
    return Answer(place, 6, names, tile, -1)


def default_one_stage(call: RuntimeCall, a: str, token: int) -> bool:
    """Whether AITER runs one assembly kernel where no row decides."""
    if call.gfx not in ("gfx942", "gfx950") or call.activation not in ("silu", "gelu"):
        return False
    silu = call.activation == "silu"
    gfx942 = call.gfx == "gfx942"
    same = a == call.weight.value
    if call.q_type is QType.PER_1X128:
        served = same and a == "fp8" and call.use_g1u1 and not call.doweight_stage1 and (silu or not gfx942)
        return served and token > 32 and call.inter_dim % 128 == 0
    if call.q_type is QType.PER_TOKEN and a == "int8" and same:
        return gfx942 and not call.doweight_stage1 and token > 32
    if call.q_type is QType.PER_TOKEN and a == "fp8" and same and call.use_g1u1:
        if call.doweight_stage1 and (gfx942 or not silu):
            return False
        return token > 16 or call.inter_dim % 128 != 0
    if a == "bf16" and same and silu and not call.use_g1u1 and not call.doweight_stage1:
        wanted = QType.NO if gfx942 else QType.PER_TOKEN
        return call.q_type is wanted and token < 256
    return False


def default_block_m(call: RuntimeCall, token: int, one_stage: bool) -> int:
    if one_stage:
        return 32
    if call.q_type is QType.PER_1X128:
        return 16 if token <= 32 else 64
    best = None
    for block in (32, 64, 128):
        groups = (
            ((call.inter_dim + 127) // 128)
            * (token * topk_of(call) + call.expert * block - topk_of(call) + block - 1)
            // block
        )
        rounds = (groups + call.cu_num - 1) // call.cu_num
        idle = call.cu_num - groups % call.cu_num
        if best is None or (rounds, idle) < best[:2]:
            best = (rounds, idle, block)
    assert best
    return best[2]


def default_ksplit(call: RuntimeCall, token: int, one_stage: bool) -> int:
    if one_stage or call.q_type not in (QType.PER_1X32, QType.PER_1X128):
        return 0
    if call.env.get("AITER_KSPLIT", "0") != "0":
        return int(call.env["AITER_KSPLIT"])
    slots = token * topk_of(call)
    groups = slots * ((call.inter_dim + 127) // 128)
    if slots > call.expert or groups >= call.cu_num:
        return 0
    splits = (call.cu_num + groups - 1) // groups
    while splits > 1:
        if call.model_dim % splits == 0 and call.model_dim // splits % 256 == 0:
            return splits
        splits -= 1
    return 0


assert {number.value for number in Format} == {"bf16", "fp8", "fp4", "int8", "int4"}
