"""Kernel names as AITER's tables write them, parsed into fields and rendered back to the same text (contract 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from moeshapes.kernel_grammar import Template, Value
from moeshapes.recipe import Format, QType

MAX_LENGTH = 256
"""Longer text is no kernel name: AITER's longest has 140 characters."""

_TILE = "{tile_m:#}x{tile_n:#}x{tile_k:#}"
_ASM_1STAGE_BEFORE = "*flat_|vs_|novs_|tkw1_|ps_|smf_|multix_|atm_|inlv_|opt_|pf#_"
_ASM_QUANT = "blockscaleFp8|blockscaleBf16|pertokenFp8|pertokenInt8|pertokenMXfp4|noquantBf16|noquantFp16"
_CK_DTYPE = "B16|F16|F8|I8|I4|FP4X2"
_CK = (
    f"{{threads:#}}x{_TILE}_{{m_waves:#}}x{{n_waves:#}}_{{op:@}}_v{{pipeline:#}}_Nswizzle{{nswizzle:0|1}}"
    "_Quant{quant_type:#}_MulRoutedWeight{mul_routed_weight:0|1}"
)

TEMPLATES = (
    Template(
        "flydsl_moe1",
        1,
        f"flydsl_moe1_a{{a:bf16|fp16|fp8|fp4}}_w{{w:fp4|fp8|int4}}_{{out:bf16|f16}}_t{_TILE}[_w{{waves_per_eu:#}}]"
        "[_kb{kb:#}][_bnt{bnt:#}][_go][_gui][_xcd{xcd:#}][_kw{kw:#}][_{out_quant:fp4|fp8}][_sbm{sbm:#}]",
    ),
    Template(
        "moe2_layout",
        2,
        f"flydsl_moe2_layout_a{{a:fp4|fp8}}_w{{w:fp4|fp8}}_{{out:bf16}}_t{_TILE}_{{mode:atomic|reduce}}"
        "[_persist][_nt][_sbm{sbm:#}][_bf16lds][_sp{sp:#}]",
    ),
    Template(
        "flydsl_moe2",
        2,
        f"flydsl_moe2_a{{a:bf16|fp16|fp8|fp4}}_w{{w:fp4|fp8|int4}}_{{out:bf16|f16}}_t{_TILE}_{{mode:atomic|reduce}}"
        "[_bnt{bnt:#}][_xcd{xcd:#}][_persist][_async][_w{waves_per_eu:#}][_cumul{cumul:#}][_sbm{sbm:#}]",
    ),
    Template("mxmoe_g1", 1, f"flydsl_mxmoe_g1_a{{a:4}}w{{w:4}}_{_TILE}[_f16in][_nt][_sk{{sk:#}}][_xcd{{xcd:#}}]"),
    Template(
        "mxmoe_g2", 2, f"flydsl_mxmoe_g2_a{{a:4}}w{{w:4}}_{_TILE}_{{mode:atomic}}[_nt][_sk{{sk:#}}][_xcd{{xcd:#}}]"
    ),
    Template("mxmoe_g2", 2, f"flydsl_mxmoe_g2_a{{a:4}}w{{w:4}}_{_TILE}[_f4out][_sk{{sk:#}}][_xcd{{xcd:#}}]"),
    Template("mxmoe_g2", 2, f"flydsl_mxmoe_g2_a{{a:4}}w{{w:4}}_{_TILE}_cshuffle[_sk{{sk:#}}][_xcd{{xcd:#}}]"),
    Template(
        "ck_gemm",
        1,
        f"moe_ck2stages_gemm1_{_CK}[_{{activation:silu|gelu|swiglu}}]_{{a:{_CK_DTYPE}}}_{{w:{_CK_DTYPE}}}_{{out:{_CK_DTYPE}}}",
    ),
    Template("ck_gemm", 2, f"moe_ck2stages_gemm2_{_CK}_{{a:{_CK_DTYPE}}}_{{w:{_CK_DTYPE}}}_{{out:{_CK_DTYPE}}}"),
    Template("cktile", None, "cktile_a{a:8}w{w:4}_bm{tile_m:#}"),
    Template("cktile_label", None, "{activation:swiglu}_mx{w:fp4}_{a:bf16}_cktile"),
    Template(
        "opus_moe1",
        1,
        "opus_moe1_a{a:fp8}_w{w:fp4}_{out:bf16}_t{tile_m:#}x{tile_n:#}_pair_kw{kw:#}_m{min_blocks:#}[_stream][_fp8]",
    ),
    Template(
        "opus_moe1",
        1,
        "opus_moe1_a{a:fp8}_w{w:fp4}_{out:bf16}_t{tile_m:#}x{tile_n:#}_gs_qgb{quant_group_blocks:#}[_stream][_k{k_colours:#}]"
        "[_bt{block_threads:#}][_aff{affinity:#}][_p{phase:#}][_mmajor][_k1lead][_fp8]",
    ),
    Template(
        "opus_moe2",
        2,
        f"opus_moe2_[layout_]a{{a:fp8}}_w{{w:fp4}}_{{out:atomic|fp8|bf16}}_t{_TILE}_sbm{{sbm:#}}[_occ{{occ:#}}]"
        "[_cache_b{cache_b:#}][_ws{ws:#}][_bt{block_threads:#}][_ring{ring:#}][_rbn{rbn:#}][_small]",
    ),
    Template(
        "asm_1stage",
        0,
        f"_ZN5aiter{{length:#}}fmoe_{{out:bf16|fp16}}_[a16_]{{quant:{_ASM_QUANT}}}_g1u{{g1u1:0|1}}_{{before:{_ASM_1STAGE_BEFORE}}}"
        "{activation:silu|gelu}_{middle:*#tg_|ps_|emsort_}{tile_m:#}x{tile_n:#}{after:*_flat|_pf#}E",
    ),
    Template(
        "asm_stage1",
        1,
        "_ZN5aiter{length:#}fmoe_stage1_{out:bf16}_pertoken{quant:Fp8|Int8}[_blockscale][_doweight]_g1u{g1u1:0|1}"
        "_{tile_m:#}x{tile_n:#}[_{tg:#}tg]_pf{pf:#}E",
    ),
    Template(
        "triton_moe1",
        1,
        f"triton_moe1_a{{a:bf16|fp8|fp4}}_w{{w:bf16|fp8|fp4}}_{{out:bf16}}_t{_TILE}_w{{warps:#}}_s{{stages:#}}[_{{out_quant:fp8|fp4}}]",
    ),
    Template(
        "triton_moe2",
        2,
        f"triton_moe2_a{{a:bf16|fp8|fp4}}_w{{w:bf16|fp8|fp4}}_{{out:bf16}}_t{_TILE}_w{{warps:#}}_s{{stages:#}}_{{mode:atomic|reduce}}",
    ),
    Template("grouped_gemm", 1, "grouped_gemm1_{a:fp4}[_{layout:gguu|gugu}]"),
    Template("grouped_gemm", 1, "grouped_gemm1_a{a:8}w{w:4}[_{layout:gguu|gugu}]"),
    Template("grouped_gemm", 2, "grouped_gemm2_{a:fp4}[_{layout:gguu|gugu}]"),
    Template("grouped_gemm", 2, "grouped_gemm2_a{a:8}w{w:4}[_{layout:gguu|gugu}]"),
)
FAMILIES = tuple(dict.fromkeys(template.family for template in TEMPLATES))
LABEL_FAMILIES = frozenset({"cktile", "cktile_label"})
"""Families whose names AITER does not launch; they only say which path was timed (contract 3.5)."""

_TOKENS_OF_FORMAT = {
    Format.BF16: ("bf16", "B16", "noquantBf16"),
    Format.FP8: ("fp8", "8", "F8", "Fp8", "blockscaleFp8", "blockscaleBf16", "pertokenFp8"),
    Format.FP4: ("fp4", "4", "FP4X2", "pertokenMXfp4"),
    Format.INT8: ("I8", "Int8", "pertokenInt8"),
    Format.INT4: ("int4", "I4"),
}
_CK_QUANT = {
    number: frozenset({q_type})
    for number, q_type in enumerate((QType.NO, QType.PER_TENSOR, QType.PER_TOKEN, QType.PER_1X32, QType.PER_1X128))
}
"""AITER's QuantType by number (contract 2.2)."""
_ONE_SCALE_A_ROW = frozenset({QType.PER_TOKEN, QType.PER_TENSOR})
_ASM_QUANT_TYPES = {
    **dict.fromkeys(("blockscaleFp8", "blockscaleBf16", "Fp8_blockscale"), frozenset({QType.PER_1X128})),
    **dict.fromkeys(("pertokenFp8", "pertokenInt8", "Fp8", "Int8"), _ONE_SCALE_A_ROW),
    "pertokenMXfp4": frozenset({QType.PER_1X32}),
    **dict.fromkeys(("noquantBf16", "noquantFp16"), frozenset({QType.NO})),
}
_MX_FAMILIES = frozenset({"moe2_layout", "grouped_gemm"}).union(
    family for family in FAMILIES if family.startswith(("flydsl", "mxmoe", "opus", "cktile"))
)
_FORMAT_OF_TOKEN = {token: number for number, tokens in _TOKENS_OF_FORMAT.items() for token in tokens}


@dataclass(frozen=True)
class KernelName:
    """A parsed kernel name: the template it follows and the fields that are present, in the template's order."""

    template: Template
    values: tuple[tuple[str, Value], ...]

    @cached_property
    def _fields(self) -> dict[str, Value]:
        return dict(self.values)

    def render(self) -> str:
        """The text that was parsed, character for character."""
        return self._rendered

    @cached_property
    def _rendered(self) -> str:
        return self.template.write(self._fields)

    @property
    def family(self) -> str:
        return self.template.family

    @property
    def stage(self) -> int | None:
        """1 or 2; 0 where one kernel does both; None for labels that stand in either column."""
        return self.template.stage

    def _number(self, name: str, default: int | None = None) -> int | None:
        """The field's number; `default` where the name omits it; None where the family has no such field."""
        value = self._fields.get(name, default if name in self.template.names else None)
        return None if value is None else int(value)

    def _text(self, name: str) -> str | None:
        value = self._fields.get(name)
        return None if value is None else str(value)

    def _flag(self, name: str) -> bool:
        return bool(self._fields.get(name, False))

    @property
    def tile_m(self) -> int | None:
        return self._number("tile_m")

    @property
    def tile_n(self) -> int | None:
        return self._number("tile_n")

    @property
    def tile_k(self) -> int | None:
        return self._number("tile_k")

    @property
    def sort_block_m(self) -> int | None:
        """Rows of the sorted block that it reads: `_sbm`, else the tile's M; None for FLAT asm, which does not tell."""
        if self.family == "asm_1stage" and "flat" in self._asm_words:
            return None
        return self._number("sbm", self.tile_m) if "sbm" in self.template.names else self.tile_m

    @property
    def a(self) -> Format | None:
        """The format of activations in the matrix multiply; None where no recipe has it (fp16)."""
        return _FORMAT_OF_TOKEN.get(self._text("a") or self._text("quant") or "")

    @property
    def w(self) -> Format | None:
        """The format of weights; None where no recipe has it."""
        stated = self._text("w") or self._text("quant")
        return _FORMAT_OF_TOKEN.get(stated or "") if stated else self.a

    @property
    def out_quant(self) -> str | None:
        """The MX format that stage 1's epilogue quantises to, `fp4` or `fp8`; None where it leaves that to others."""
        fused = {"opus_moe1": "fp8", "mxmoe_g1": "fp4"}
        return self._text("out_quant") or fused.get(self.family)

    @property
    def mode(self) -> str | None:
        """How stage 2 sums over slots, `atomic` or `reduce`, as named; bf16 activations are always atomic."""
        if self.family == "mxmoe_g2":
            return self._text("mode") or "reduce"
        if self.family == "opus_moe2":
            return "atomic" if self._text("out") == "atomic" else "reduce"
        return self._text("mode")

    @property
    def slot_quant(self) -> str | None:
        """What stage 2 rounds each slot's result to before the sum, `fp4` or `fp8`; None for no rounding."""
        if self.family == "opus_moe2" and self._text("out") == "fp8":
            return "fp8"
        return "fp4" if self.f4out else None

    @property
    def f4out(self) -> bool:
        return self._flag("f4out")

    @property
    def f16in(self) -> bool:
        """Whether an mxmoe stage 1 takes 16-bit activations and quantises them inside."""
        return self._flag("f16in")

    @property
    def xbf16(self) -> bool:
        """Whether a one-stage kernel takes 16-bit activations and quantises them inside."""
        return self._flag("a16") or self._text("quant") in ("blockscaleBf16", "pertokenMXfp4")

    @property
    def activation(self) -> str | None:
        """The activation compiled in; None where it is an argument. mxmoe always runs SiLU (contract 3.4)."""
        return "silu" if self.family == "mxmoe_g1" else self._text("activation")

    @property
    def q_types(self) -> frozenset[QType]:
        """The quantisations that the name admits; none where it does not tell."""
        if self.family == "ck_gemm":
            return _CK_QUANT.get(self._number("quant_type") or 0, frozenset())
        if self.family in _MX_FAMILIES:
            return frozenset({QType.PER_1X32})
        quant = f"{self._text('quant') or ''}{'_blockscale' if self._flag('blockscale') else ''}"
        return _ASM_QUANT_TYPES.get(quant, frozenset())

    @property
    def flat(self) -> int | None:
        """How a one-stage kernel takes its tokens: 0 sorted by the host, 1 as they come, 2 sorted inside."""
        if self.family != "asm_1stage":
            return None
        return 1 if "flat" in self._asm_words else 2 if "emsort" in self._asm_words else 0

    @property
    def splits_k(self) -> bool:
        """Whether a CK stage 1 splits K over the grid by the row's ksplit."""
        return self.family == "ck_gemm" and (self._text("op") or "").endswith("Splitk")

    @property
    def doweight_stage1(self) -> bool | None:
        """Whether the routing weight is applied in stage 1; None where the name does not tell."""
        if self.family == "ck_gemm":
            here = self._text("mul_routed_weight") == "1"
            return here if self.stage == 1 else not here
        if self.family == "asm_1stage":
            return "tkw1" in self._asm_words
        return self._flag("doweight") if self.family == "asm_stage1" else None

    @property
    def xcd(self) -> int | None:
        """The XCD swizzle's group; 0 for none."""
        return self._number("xcd", 0)

    @property
    def bnt(self) -> int | None:
        """The cache modifier of weight loads: 0 cached, 2 non-temporal; by default 2 in stage 1, 0 in stage 2."""
        return self._number("bnt", 2 if self.stage == 1 else 0)

    @property
    def kb(self) -> int | None:
        """K slices over the grid."""
        return self._number("kb", 1)

    @property
    def kw(self) -> int | None:
        """K slices within a block."""
        return self._number("kw", 1)

    @property
    def waves_per_eu(self) -> int | None:
        return self._number("waves_per_eu", 1)

    @property
    def warps(self) -> int | None:
        """Warps of a Triton program."""
        return self._number("warps")

    @property
    def stages(self) -> int | None:
        """Software pipeline stages of a Triton kernel."""
        return self._number("stages")

    @property
    def nt(self) -> bool:
        return self._flag("nt")

    @property
    def gui(self) -> bool:
        """Whether a FlyDSL stage 1 reads gate and up interleaved."""
        return self._flag("gui")

    @property
    def persist(self) -> bool:
        return self._flag("persist") or "ps" in self._asm_words

    @property
    def _asm_words(self) -> list[str]:
        return [
            word for field in ("before", "middle", "after") for word in (self._text(field) or "").split("_") if word
        ]

    @property
    def corrected(self) -> str:
        """The name with the length prefix that its mangled symbol needs; unchanged where it has none or it is right."""
        if "length" not in self.template.names:
            return self.render()
        symbol = self.render().removeprefix(f"_ZN5aiter{self._number('length')}").removesuffix("E")
        return f"_ZN5aiter{len(symbol)}{symbol}E"

    def matches(self, policy: Mapping[str, object]) -> bool:
        """Whether every field has the stated value. Raises AttributeError for a name that is not in POLICY_FIELDS."""
        return all(_same(getattr(self, name), expected) for name, expected in policy.items())


def _same(actual: object, expected: object) -> bool:
    """Equal and of one kind: `true` is not 1. A Format equals its text."""
    return actual == expected and isinstance(actual, bool) == isinstance(expected, bool)


@lru_cache(maxsize=4096)
def parse(name: str) -> KernelName | None:
    """The fields of a kernel name, None for text that no family's grammar covers."""
    if len(name) > MAX_LENGTH:
        return None
    for template in TEMPLATES:
        values = template.read(name)
        if values is not None:
            return KernelName(template, tuple(values.items()))
    return None


@dataclass(frozen=True)
class PolicyField:
    """A field that kernel policies may match: its name, its value's type, and the legal values where they are few."""

    name: str
    type: type[int] | type[str] | type[bool]
    choices: tuple[str | int, ...] = ()


_FORMATS = tuple(number.value for number in Format)
POLICY_FIELDS = (
    PolicyField("family", str, FAMILIES),
    PolicyField("stage", int, (0, 1, 2)),
    PolicyField("a", str, _FORMATS),
    PolicyField("w", str, _FORMATS),
    PolicyField("out_quant", str, ("fp4", "fp8")),
    PolicyField("slot_quant", str, ("fp4", "fp8")),
    PolicyField("mode", str, ("atomic", "reduce")),
    PolicyField("activation", str, ("silu", "gelu", "swiglu")),
    *(PolicyField(name, int) for name in ("tile_m", "tile_n", "tile_k", "sort_block_m")),
    *(PolicyField(name, int) for name in ("xcd", "bnt", "kb", "kw", "waves_per_eu")),
    *(PolicyField(name, bool) for name in ("doweight_stage1", "f4out", "f16in", "xbf16", "nt", "gui", "persist")),
)
