"""What the symbol of a named kernel must look like, by the sources that name the symbols.

FlyDSL builds a symbol from the tile that runs, which tells a tile that was silently replaced. Assembly's symbol is the
name itself. CK, CK-Tile and opus name no instance: there only the kind of kernel can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from moeshapes.kernel_name import KernelName
from moeshapes.recipe import Format

_END = r"(?=_|$)"


def is_launched(name: KernelName, symbols: Iterable[str]) -> bool:
    """Whether one of the symbols is the kernel's."""
    pattern = re.compile(_PATTERNS[name.family](name)) if name.family in _PATTERNS else None
    return pattern is not None and any(pattern.search(symbol) for symbol in symbols)


def _flags(**said: bool) -> str:
    """Parts of a symbol that must or must not be there, in any order: `fp8q=True`."""
    return "".join(f"(?{'=' if holds else '!'}.*_{flag}{_END})" for flag, holds in said.items())


def _value(name: KernelName, which: str) -> str:
    number: Format | None = getattr(name, which)
    return number.value if number else "unknown"


def _tile(name: KernelName) -> str:
    return f"_t{name.tile_m}x{name.tile_n}x{name.tile_k}{_END}"


def _numbered(tag: str, number: int | None, none: int) -> str:
    """A part that stands there with its number unless it is the one that says nothing."""
    return f"(?=.*_{tag}{number}{_END})" if (number or none) != none else f"(?!.*_{tag}\\d+{_END})"


def _flydsl_stage1(name: KernelName) -> str:
    if name.a is Format.BF16:
        weight = "" if name.w is Format.FP4 else f"_{_value(name, 'w')}"
        return f"gemm1_a16w4_port_a16w4{weight}_h\\d+_i\\d+_ne\\d+_bm{name.tile_m}_tn{name.tile_n}{_END}"
    # Where the grid splits K, a kernel of its own quantises the sum.
    fused = _flags(**{f"{name.out_quant}q": True}) if name.out_quant and name.kb == 1 else ""
    split = _numbered("sk", name.kb, 1) + _numbered("kw", name.kw, 1) + _numbered("xcd", name.xcd, 0)
    formats = f"_a{_value(name, 'a')}_w{_value(name, 'w')}_"
    return f"mfma_moe1_{_flags(gui=name.gui)}{fused}{split}.*{formats}.*{_tile(name)}"


def _flydsl_stage2(name: KernelName) -> str:
    if name.a is Format.BF16:
        weight = "" if name.w is Format.FP4 else f"_{_value(name, 'w')}"
        return f"gemm2_a16w4{weight}_port_ne\\d+_h\\d+_i\\d+_bm{name.tile_m}_tn{name.tile_n}{_END}"
    sort_block = 0 if name.sort_block_m == name.tile_m else name.sort_block_m
    parts = _flags(acc0=name.mode == "reduce") + _numbered("sbm", sort_block, 0)
    return f"mfma_moe2_{parts}a{_value(name, 'a')}_w{_value(name, 'w')}_.*{_tile(name)}"


def _layout_stage2(name: KernelName) -> str:
    usual = (name.tile_n, name.tile_k) == (256, 256)
    tile = f"_bm{name.tile_m}" + ("" if usual else f"_bn{name.tile_n}_bk{name.tile_k}")
    parts = _flags(a8=name.a is Format.FP8, w8=name.w is Format.FP8, nt=name.nt)
    return f"gemm2_a4w4_port_{parts}hmax\\d+_imax\\d+{tile}(_nt)?_{name.mode}(_tk\\d+)?{_END}.*_v2"


def _mxmoe_stage1(name: KernelName) -> str:
    variant = "iq" if name.f16in else "nt" if name.nt else "cached"
    return f"gemm1_a4w4_port_h\\d+_i\\d+_ne\\d+_bm{name.tile_m}_{variant}_"


def _mxmoe_stage2(name: KernelName) -> str:
    shuffled = "_cshuffle" in name.render()
    epilogue = "nonatomic_mxfp4" if name.f4out else "nonatomic_cshuffle" if shuffled else "nonatomic"
    epilogue = "atomic" if name.mode == "atomic" else epilogue
    nt = "_nt" if name.nt else ""
    return f"gemm2_a4w4_port_ne\\d+_h\\d+_i\\d+(r\\d+)?_bm{name.tile_m}{nt}_{epilogue}(_xcd\\d+)?$"


def _assembly(name: KernelName) -> str:
    """Mangled or not: the profiler may show `aiter::fmoe_…`."""
    symbol = re.sub(r"^_ZN5aiter\d+|E$", "", name.corrected)
    return f"{re.escape(symbol)}(?![0-9_])"


_PATTERNS: dict[str, Callable[[KernelName], str]] = {
    "flydsl_moe1": _flydsl_stage1,
    "flydsl_moe2": _flydsl_stage2,
    "moe2_layout": _layout_stage2,
    "mxmoe_g1": _mxmoe_stage1,
    "mxmoe_g2": _mxmoe_stage2,
    "asm_1stage": _assembly,
    "asm_stage1": _assembly,
    "ck_gemm": lambda name: "kernel_moe_(mx)?gemm",
    "cktile": lambda name: "MoeFlatmm",
    "opus_moe1": lambda name: "opus_moe_stage1_a8w4_kernel",
    "opus_moe2": lambda name: "opus_moe_stage2_a8w4_decode_kernel",
}
