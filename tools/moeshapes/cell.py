"""Cells: what each known column of AITER's fused-MoE tables may hold, and how AITER spells it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite

from moeshapes.row import UNTUNED_COLUMNS
from moeshapes.rule import Rule, Severity
from moeshapes.spelling import nearest

BAD_VALUE = Rule(
    "MOE119",
    "bad-value",
    Severity.ERROR,
    what="A cell holds what its column cannot hold.",
    why="AITER's reader would take it as text, as NaN or as another number than was meant.",
    fix="Write a legal value.",
)
BAD_TIME = Rule(
    "MOE120",
    "bad-time",
    Severity.ERROR,
    what="A time is zero, negative or not finite.",
    why="AITER keeps the lowest time of a key, so a failed measurement beats every honest one.",
    fix="Measure the row again, or remove it.",
)
NOT_CANONICAL = Rule(
    "MOE121",
    "not-canonical",
    Severity.ERROR,
    what="A cell means a legal value but is not spelled as AITER spells it.",
    why="AITER compares cells exactly, so the row never matches a lookup and is not seen as a duplicate of another.",
    fix="Write AITER's spelling.",
)

CORE_COLUMNS = (
    "cu_num",
    *UNTUNED_COLUMNS,
    *(
        "block_m",
        "ksplit",
        "us1",
        "kernelName1",
        "err1",
        "us2",
        "kernelName2",
        "err2",
        "us",
    ),
    "run_1stage",
)
"""What every tuned table has (contract 2.1)."""

DEFAULT_OF_ABSENT_COLUMN = {"gfx": "", "xbf16": "0", "flat": "0", "tflops": "", "bw": "", "_tag": ""}
"""What AITER assumes where a table lacks the column; gfx follows from cu_num."""

MAY_BE_BLANK = frozenset({"kernelName2", "tflops", "bw", "_tag"})

_ACTIVATIONS = tuple(f"ActivationType.{name}" for name in ("No", "Silu", "Gelu", "Swiglu", "Situv2"))
_QUANT_TYPES = tuple(
    f"QuantType.{name}"
    for name in ("No", "per_Tensor", "per_Token", "per_1x32", "per_1x128", "per_256x128", "per_1024x128")
)
_OUTPUT_DTYPES = ("torch.bfloat16", "torch.float16")
_DTYPES = (
    *_OUTPUT_DTYPES,
    *(
        "torch.float8_e4m3fn",
        "torch.float8_e4m3fnuz",
        "torch.float4_e2m1fn_x2",
        "torch.int8",
        "torch.int4",
        "torch.uint32",
    ),
)
_ALIASES = {
    "dtypes.bf16": "torch.bfloat16",
    "dtypes.fp16": "torch.float16",
    "dtypes.fp4x2": "torch.float4_e2m1fn_x2",
    "dtypes.i8": "torch.int8",
    "dtypes.i4x2": "torch.int4",
    "quanttype.per_128x128": "QuantType.per_1x128",
}
_TRUTH_VALUES = {"true": "1", "false": "0"}
_FLAVOURED = frozenset({"dtypes.fp8", "torch.fp8", "fp8"})

_INTEGER = re.compile(r"0|[1-9][0-9]{0,8}")
_LOOSE_INTEGER = re.compile(r"\+?0*([0-9]{1,9})(?:\.0{0,6})?")
_DECIMAL = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,4})?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_GFX = re.compile(r"gfx[1-9][0-9a-f]{2,4}|sm_[1-9][0-9]{1,2}")
"""AMD's architectures, and NVIDIA's, on which the portable kernels run."""
_PLAIN_DECIMAL = r"(?:0|[1-9][0-9]{0,19})(?:\.[0-9]{1,20})?"
_PLAIN_TEXT = r"(?:[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63})?"


@dataclass(frozen=True)
class Reading:
    """What a cell means: AITER's spelling of it, None where it is unusable; and the rule that it breaks, if any."""

    canonical: str | None
    rule: Rule | None = None
    message: str = ""
    remedy: str = ""


@lru_cache(maxsize=1 << 16)
def read_cell(column: str, text: str) -> Reading:
    """Reads a cell. Of a column that holds any text all is right but what a spreadsheet would run."""
    reader = _READERS.get(column)
    if reader is None:
        return _bad(column, text, "plain text: a spreadsheet would run it") if is_formula(text) else Reading(text)
    if text == "" and column in MAY_BE_BLANK:
        return Reading(text)
    stripped = text.strip()
    if not stripped:
        return Reading(None, BAD_VALUE, f"`{column}` is empty")
    reading = reader(column, stripped)
    if stripped != text and reading.canonical is not None and reading.rule is None:
        return _respelled(column, text, reading.canonical)
    return reading


def is_formula(text: str) -> bool:
    """Whether a spreadsheet that opens the table takes a cell for more than text or a number."""
    start = text.lstrip()[:1]
    return start in ("=", "+", "@") or (start == "-" and not _DECIMAL.fullmatch(text.strip()))


def _respelled(column: str, text: str, canonical: str) -> Reading:
    return Reading(
        canonical, NOT_CANONICAL, f"`{column}` is `{text}`; AITER's spelling is `{canonical}`", f"Write `{canonical}`."
    )


def _bad(column: str, text: str, expected: str) -> Reading:
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    return Reading(None, BAD_VALUE, f"`{column}` is `{shown}`, not {expected}")


def _integer(low: int, high: int, expected: str) -> Callable[[str, str], Reading]:
    def read(column: str, text: str) -> Reading:
        if _INTEGER.fullmatch(text):
            return Reading(text) if low <= int(text) <= high else _bad(column, text, expected)
        loose = _LOOSE_INTEGER.fullmatch(text)
        meant = str(int(loose[1])) if loose else _TRUTH_VALUES.get(text.lower(), "") if high <= 2 else ""
        return _respelled(column, text, meant) if meant and low <= int(meant) <= high else _bad(column, text, expected)

    return read


def _decimal(column: str, text: str) -> Reading:
    number = _DECIMAL.fullmatch(text)
    if number and isfinite(float(text)) and not text.startswith("-"):
        return Reading(text)
    return _bad(column, text, "a plain decimal number of at least 0")


def _time(may_be_zero: bool) -> Callable[[str, str], Reading]:
    def read(column: str, text: str) -> Reading:
        if not _DECIMAL.fullmatch(text) and text.lower().lstrip("+-") not in ("nan", "inf", "infinity"):
            return _bad(column, text, "a time in microseconds as a plain decimal number")
        value = float(text)
        if isfinite(value) and (value > 0 or (may_be_zero and value == 0)):
            return Reading(text)
        return Reading(None, BAD_TIME, f"`{column}` is {text} µs")

    return read


def _error(column: str, text: str) -> Reading:
    number = text.removesuffix("%")
    if _DECIMAL.fullmatch(number) and isfinite(float(number)):
        return Reading(text)
    return _bad(column, text, "an error like `0.9%` or `0.0091`")


def _kernel(column: str, text: str) -> Reading:
    if column == "kernelName2" and text == "Null":
        return Reading("")
    return Reading(text) if _NAME.fullmatch(text) else _bad(column, text, "a kernel's name")


def _one_of(legal: tuple[str, ...]) -> Callable[[str, str], Reading]:
    by_lower = {word.lower(): word for word in legal} | {word.lower().partition(".")[2]: word for word in legal}

    def read(column: str, text: str) -> Reading:
        if text in legal:
            return Reading(text)
        lowered = text.lower()
        if lowered in _FLAVOURED and "torch.float8_e4m3fn" in legal:
            either = "torch.float8_e4m3fnuz on gfx942, torch.float8_e4m3fn on gfx950"
            return Reading(
                None, NOT_CANONICAL, f"`{column}` is `{text}`; AITER's spelling is {either}", f"Write {either}."
            )
        meant = by_lower.get(lowered) or _ALIASES.get(lowered)
        if meant in legal:
            return _respelled(column, text, meant)
        close = nearest(text, legal)
        return _bad(column, text, f"one of AITER's: did you mean `{close}`?" if close else f"one of {', '.join(legal)}")

    return read


def _gfx(column: str, text: str) -> Reading:
    return Reading(text) if _GFX.fullmatch(text) else _bad(column, text, "an architecture like `gfx950`")


def offset(cells: Sequence[str], index: int) -> int:
    """The 1-based character column at which a cell of a line begins."""
    return 1 + sum(len(cell) + 1 for cell in cells[:index])


_SIZE = _integer(1, 1 << 24, "a whole number from 1 to 16777216")
_FLAG = _integer(0, 1, "0 or 1")
_READERS: dict[str, Callable[[str, str], Reading]] = {
    "gfx": _gfx,
    **dict.fromkeys(("cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "block_m"), _SIZE),
    "act_type": _one_of(_ACTIVATIONS),
    "dtype": _one_of(_OUTPUT_DTYPES),
    **dict.fromkeys(("q_dtype_a", "q_dtype_w"), _one_of(_DTYPES)),
    "q_type": _one_of(_QUANT_TYPES),
    **dict.fromkeys(("use_g1u1", "doweight_stage1", "run_1stage", "xbf16"), _FLAG),
    "ksplit": _integer(0, 64, "a whole number from 0 to 64"),
    "flat": _integer(0, 2, "0, 1 or 2"),
    **dict.fromkeys(("us1", "us2"), _time(may_be_zero=True)),
    "us": _time(may_be_zero=False),
    **dict.fromkeys(("err1", "err2"), _error),
    **dict.fromkeys(("kernelName1", "kernelName2"), _kernel),
    **dict.fromkeys(("tflops", "bw"), _decimal),
}
KNOWN_COLUMNS = (*_READERS, "_tag")

Sieve = Callable[[str], object]
"""Tells of a cell, at once, that it is right as it is spelled. What does not pass may be right too, and is read."""


class _RightWords(dict[str, bool]):
    """The texts of a column that have been seen, and whether each is right as it is spelled."""

    most = 4096

    def __init__(self, column: str) -> None:
        super().__init__()
        self._column = column

    def __missing__(self, text: str) -> bool:
        reading = read_cell(self._column, text)
        right = reading.rule is None and reading.canonical == text
        if len(self) < self.most:
            self[text] = right
        return right


_PLAIN_PATTERNS = {
    "us": r"[1-9][0-9]{0,19}(?:\.[0-9]{1,20})?",
    **dict.fromkeys(("us1", "us2"), _PLAIN_DECIMAL),
    **dict.fromkeys(("err1", "err2"), _PLAIN_DECIMAL + "%?"),
    **dict.fromkeys(("tflops", "bw"), f"(?:{_PLAIN_DECIMAL})?"),
}
"""Measured values, which hardly ever come twice."""


@lru_cache(maxsize=256)
def sieve_of(column: str) -> Sieve:
    """The column's sieve. What passes holds no character that makes a line unreadable or foreign."""
    if column in _READERS and column not in _PLAIN_PATTERNS:
        return _RightWords(column).__getitem__
    return re.compile(_PLAIN_PATTERNS.get(column, _PLAIN_TEXT)).fullmatch
