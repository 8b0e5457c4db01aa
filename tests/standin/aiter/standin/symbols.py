"""Kernel symbols as AITER's sources put them together, as far as a call decides them."""

from __future__ import annotations

from .call import Call
from .names import Flydsl, Mxmoe

_GRID_LIMIT = 256
"""Sorted blocks above which a FlyDSL stage 2 runs a fixed grid."""


def flydsl_stage1(f: Flydsl, act: str, layout_out: bool) -> str:
    """`flydsl_moe1_` of mx activations; `f` with the tile that runs."""
    quantises = f.fused and f.number("kb") <= 1  # where the grid splits K, a kernel of its own does
    tags = [
        f"_{f.fused}q_sort" if quantises else "",
        "_async",
        f"_sk{f.number('kb')}" if f.number("kb") > 1 else "",
        f"_kw{f.number('kw')}" if f.number("kw") > 1 else "",
        "_go" if "go" in f.flags else "",
        "_gui" if "gui" in f.flags else "",
        f"_xcd{f.number('xcd')}" if f.number("xcd") else "",
        "" if act == "silu" else f"_{act}",
        "_v2out" if layout_out else "",
    ]
    out = f.fused if quantises else f.out
    return f"mfma_moe1_silu_mul_a{f.a}_w{f.w}_{out}_t{f.m}x{f.n}x{f.k}_pm1{''.join(tags)}_v33"


def flydsl_stage2(f: Flydsl, call: Call, cu_num: int, reduces: bool) -> str:
    """`flydsl_moe2_` of mx activations; `f` with the tile that runs."""
    sort_block = f.number("sbm") or f.m
    slots = call.tokens * call.topk
    blocks = min(-(-(slots + call.experts * sort_block - call.topk) // sort_block), slots)
    persists = f.a != "fp8" and ("persist" in f.flags or blocks > _GRID_LIMIT)
    cus = cu_num * max(f.number("cumul"), 1)
    tags = [
        f"_persist_cu{cus}" if persists else "_pm1",
        f"_sbm{sort_block}" if sort_block != f.m else "",
        f"_w{f.number('wpe')}" if f.number("wpe") else "",
        "_async" if "async" in f.flags else "",
        f"_cumul{f.number('cumul')}" if f.number("cumul") > 1 else "",
        f"_xcd{f.number('xcd')}" if f.number("xcd") else "",
        "_acc0" if reduces else "",
    ]
    return f"mfma_moe2_a{f.a}_w{f.w}_{f.out}_cshuffle_t{f.m}x{f.n}x{f.k}_vscale_fix3_fp4opt_v1{''.join(tags)}"


def layout_stage2(f: Flydsl, call: Call, cu_num: int) -> str:
    """`flydsl_moe2_layout_`."""
    sort_block = f.number("sbm") or f.m
    tags = [
        "" if (f.n, f.k) == (256, 256) else f"_bn{f.n}_bk{f.k}",
        "_nt" if "nt" in f.flags else "",
        "_atomic" if f.mode == "atomic" else f"_reduce_tk{call.topk}",
        "_a8" if f.a == "fp8" else "",
        "_w8" if f.w == "fp8" else "",
        f"_sbm{sort_block}" if sort_block != f.m else "",
        f"_persist_cu{cu_num}" if "persist" in f.flags else "",
        "_pad" if call.hidden_pad or call.intermediate_pad else "",
        "_bf16lds" if "bf16lds" in f.flags else "",
    ]
    return f"gemm2_a4w4_port_hmax8192_imax{call.inter_dim}_bm{f.m}{''.join(tags)}_kst_v2"


def mxmoe_stage1(m: Mxmoe, call: Call, interleaved: bool) -> str:
    variant = "iq" if "f16in" in m.flags else "nt" if "nt" in m.flags else "cached"
    shape = f"h{call.model_dim}_i{call.inter_dim}_ne{call.experts}_bm{m.block_m}"
    return f"gemm1_a4w4_port_{shape}_{variant}_{'il' if interleaved else 'sep'}{_xcd(m.xcd)}"


def mxmoe_stage2(m: Mxmoe, call: Call) -> str:
    epilogue = "atomic" if "atomic" in m.flags else "nonatomic_cshuffle" if "cshuffle" in m.flags else "nonatomic"
    shape = f"ne{call.experts}_h{call.model_dim}_i{call.inter_dim}_bm{m.block_m}"
    return f"gemm2_a4w4_port_{shape}{'_nt' if 'nt' in m.flags else ''}_{epilogue}{_xcd(m.xcd)}"


def _xcd(group: int) -> str:
    return f"_xcd{group}" if group else ""


_NON_TEMPORAL = 2


def _load_hint(f: Flydsl, absent: int) -> str:
    hint = dict(f.numbers).get("bnt", absent)
    return "" if hint == _NON_TEMPORAL else f"_bcm{hint}"


def port_stage1(f: Flydsl, call: Call, act: str) -> str:
    """`flydsl_moe1_` of bf16 activations."""
    weight = "" if f.w == "fp4" else f"_{f.w}"
    shape = f"h{call.model_dim}_i{call.inter_dim}_ne{call.experts}_bm{f.m}_tn{f.n}"
    tags = ["" if act == "silu" else f"_{act}", _load_hint(f, 2), _xcd(f.number("xcd"))]
    slices = f"_kw{f.number('kw')}" if f.number("kw") > 1 else ""
    return f"gemm1_a16w4_port_a16w4{weight}_{shape}{''.join(tags)}{slices}"


def port_stage2(f: Flydsl, call: Call) -> str:
    """`flydsl_moe2_` of bf16 activations; `f` with the tile that runs."""
    weight = "" if f.w == "fp4" else f"_{f.w}"
    shape = f"ne{call.experts}_h{call.model_dim}_i{call.inter_dim}_bm{f.m}_tn{f.n}"
    waves = f"_w{f.number('wpe')}" if f.number("wpe") else ""
    return f"gemm2_a16w4{weight}_port_{shape}{_load_hint(f, 0)}{_xcd(f.number('xcd'))}{waves}"


def ck(stage: int, mx: bool, tile: str) -> str:
    """CK's templates: the stage and the tile are among their arguments, no name is."""
    kernel = "kernel_moe_mxgemm" if mx else "kernel_moe_gemm"
    return f"void ck::{kernel}<ck::GridwiseMoeGemm<{tile or 'chosen in compiled code'}, IsInputGemm={stage == 1}>>"


CK_TILE = "ck_tile::kentry<ck_tile::MoeFlatmmKernel<{stage}>>"
OPUS_1 = "opus_moe::stage1_a8w4::opus_moe_stage1_a8w4_kernel_{kind}_gfx950<>"
OPUS_2 = "opus_moe_stage2_a8w4_decode_kernel_gfx950<>"
OPUS_REDUCE = "opus_moe_stage2_reduce_token_slot_route_output_kernel_gfx950<>"
SORT = "opus_moe_sorting_entry"
SORT_ADAPTIVE = "sort_count_kernel_impl"
QUANT = {"1x32": "fused_mx_quant_moe_sort_kernel", "tensor": "scaled_quant_kernel"}
QUANT_ROWS = "dynamic_per_group_scaled_quant_kernel"
