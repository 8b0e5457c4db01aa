"""What kernel names say, by one pattern each. Only what changes numbers or symbols is kept (contract 4)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .refusal import require

_TILE = r"_t(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
_FLYDSL_1 = re.compile(
    r"flydsl_moe1_a(?P<a>\w+?)_w(?P<w>\w+?)_(?P<out>bf16|f16)" + _TILE + r"(?:_w\d+)?(?:_kb(?P<kb>\d+))?"
    r"(?:_bnt(?P<bnt>\d+))?(?P<go>_go)?(?P<gui>_gui)?(?:_xcd(?P<xcd>\d+))?(?:_kw(?P<kw>\d+))?(?:_(?P<fused>fp4|fp8))?"
    r"(?:_sbm(?P<sbm>\d+))?"
)
_FLYDSL_2 = re.compile(
    r"flydsl_moe2_a(?P<a>\w+?)_w(?P<w>\w+?)_(?P<out>bf16|f16)"
    + _TILE
    + r"_(?P<mode>atomic|reduce)(?:_bnt(?P<bnt>\d+))?"
    r"(?:_xcd(?P<xcd>\d+))?(?P<persist>_persist)?(?P<async>_async)?(?:_w(?P<wpe>\d+))?(?:_cumul(?P<cumul>\d+))?"
    r"(?:_sbm(?P<sbm>\d+))?"
)
_LAYOUT = re.compile(
    r"flydsl_moe2_layout_a(?P<a>\w+?)_w(?P<w>\w+?)_(?P<out>bf16)" + _TILE + r"_(?P<mode>atomic|reduce)"
    r"(?P<persist>_persist)?(?P<nt>_nt)?(?:_sbm(?P<sbm>\d+))?(?P<bf16lds>_bf16lds)?(?:_sp(?P<sp>\d+))?"
)
_MXMOE = re.compile(
    r"flydsl_mxmoe_g(?P<stage>[12])_a4w4_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?P<flags>(?:_f16in|_nt|_atomic|_f4out"
    r"|_cshuffle)*)(?:_sk\d+)?(?:_xcd(?P<xcd>\d+))?"
)
_OPUS_2 = re.compile(r"opus_moe2_(?:layout_)?afp8_wfp4_(?P<out>atomic|fp8|bf16)" + _TILE + r"_sbm(?P<sbm>\d+)\w*")


@dataclass(frozen=True)
class Flydsl:
    """A FlyDSL name's fields, empty or 0 where it has none. `flags`: the words that stand alone."""

    a: str
    w: str
    out: str
    m: int
    n: int
    k: int
    mode: str = ""
    fused: str = ""
    numbers: tuple[tuple[str, int], ...] = ()
    flags: frozenset[str] = frozenset()

    def number(self, name: str) -> int:
        return dict(self.numbers).get(name, 0)

    def with_tile(self, n: int | None = None, k: int | None = None) -> Flydsl:
        return replace(self, n=n or self.n, k=k or self.k)


_NUMBERS = ("kb", "bnt", "xcd", "kw", "sbm", "wpe", "cumul", "sp")
_FLAGS = ("go", "gui", "persist", "async", "nt", "bf16lds")


def _fields(found: re.Match[str]) -> Flydsl:
    group = found.groupdict()
    numbers = [(name, int(group[name])) for name in _NUMBERS if group.get(name)]
    return Flydsl(
        group["a"],
        group["w"],
        group["out"],
        int(group["m"]),
        int(group["n"]),
        int(group["k"]),
        group.get("mode") or "",
        group.get("fused") or "",
        tuple(numbers),
        frozenset(name for name in _FLAGS if group.get(name)),
    )


def parse_flydsl(stage: int, name: str) -> Flydsl:
    """The fields of a `flydsl_moe1_` or `flydsl_moe2_` name. Raises ValueError, as AITER does, for others."""
    found = (_FLYDSL_1 if stage == 1 else _FLYDSL_2).fullmatch(name)
    if not found:
        raise ValueError(f"Invalid FlyDSL kernel name: {name}")
    return _fields(found)


def parse_layout(name: str) -> Flydsl | None:
    """The fields of a `flydsl_moe2_layout_` name, None for others."""
    found = _LAYOUT.fullmatch(name)
    if not found and name.startswith("flydsl_moe2_layout_"):
        raise ValueError(f"Invalid FlyDSL v2 GEMM2 kernel name: {name}")
    return _fields(found) if found else None


@dataclass(frozen=True)
class Mxmoe:
    """An mxmoe name's fields."""

    block_m: int
    flags: frozenset[str]
    xcd: int


def parse_mxmoe(stage: int, name: str) -> Mxmoe:
    """The fields of a `flydsl_mxmoe_g` name of that stage. Raises ValueError, as AITER does, for others."""
    found = _MXMOE.fullmatch(name)
    if not found or int(found["stage"]) != stage:
        raise ValueError(f"bad mxmoe kernel name: {name!r}")
    return Mxmoe(int(found["m"]), frozenset(found["flags"].split("_")) - {""}, int(found["xcd"] or 0))


def mxmoe_block(name: str) -> int:
    """The rows of an mxmoe stage 1's tile, 0 for other names."""
    found = _MXMOE.fullmatch(name)
    return int(found["m"]) if found and found["stage"] == "1" else 0


def opus_slots(name: str) -> str:
    """How an opus stage 2 writes: `atomic`, or slots as `fp8` or `bf16` that are then summed."""
    found = _OPUS_2.fullmatch(name)
    require(found is not None, f"unknown Opus A8W4 stage2 kernelName2={name!r}")
    assert found is not None
    return found["out"]


def opus_block(name: str) -> int | None:
    """The sorted block that an opus stage 2 demands, None for other names."""
    found = _OPUS_2.fullmatch(name)
    return int(found["sbm"]) if found else None
