"""The form that a checkpoint keeps a weight matrix in, from the types and shapes of its codes and scales alone."""

from __future__ import annotations

from dataclasses import dataclass

from moeshapes.checkpoint.index import Entry
from moeshapes.recipe import Format, QType

WIDE = 128
_NARROW = 32
_ELEMENTS_OF_MX_ITEM = 32
"""gpt-oss keeps each block of 32 fp4 codes on an axis of its own, 16 bytes long."""
PLAIN = ("BF16", "F16", "F32")
_E8M0 = ("F8_E8M0", "U8")


@dataclass(frozen=True)
class Form:
    """How a matrix `[rows, k]` is stored.

    `items` is how many elements along K one index of the codes' second axis holds. `scale_rows` and `scale_k` are the
    elements that one scale covers along each axis, 0 for the whole axis.
    """

    rows: int
    k: int
    number: Format
    q_type: QType
    items: int = 1

    @property
    def scale_rows(self) -> int:
        return {QType.PER_1X128: WIDE, QType.PER_TENSOR: 0}.get(self.q_type, 1)

    @property
    def scale_k(self) -> int:
        return {QType.PER_1X32: _NARROW, QType.PER_1X128: WIDE}.get(self.q_type, 0)

    @property
    def step(self) -> int:
        """Slices along K begin at multiples of it."""
        return max(self.items, self.scale_k, 1)


def form_of(codes: Entry, scales: Entry | None, stacked: bool) -> Form | str:
    """The form, or why it is none that is known. `stacked`: the first axis of both counts experts.

    Known are bf16, fp16 and fp32; fp8 (e4m3fn) under one scale a tensor, row, 128x128 block or 32 elements of a row
    (e8m0); int8 under one a tensor or row; fp4, two to a byte, under e8m0 scales of 32; int4, eight to an int32 with 8
    added, under scales of 32, as compressed-tensors packs it.
    """
    stored = f"{described(codes)} {f'with scales {described(scales)}' if scales else 'without scales'}"
    if 0 in codes.shape:
        return f"{described(codes)} holds no weights"
    if stacked and scales and scales.shape[:1] != codes.shape[:1]:
        return f"{stored} has not the scales of each expert"
    shape = codes.shape[1:] if stacked else codes.shape
    scale_shape = None if scales is None else scales.shape[1:] if stacked else scales.shape
    if len(shape) == 3 and shape[2] * 2 == _ELEMENTS_OF_MX_ITEM and codes.dtype == "U8":
        form = Form(shape[0], shape[1] * _ELEMENTS_OF_MX_ITEM, Format.FP4, QType.PER_1X32, _ELEMENTS_OF_MX_ITEM)
        candidates = [form]
    elif len(shape) == 2:
        candidates = _candidates(shape[0], shape[1], codes.dtype)
    else:
        return f"{described(codes)} is no matrix"
    for form in candidates:
        if _scales_fit(form, scale_shape, "" if scales is None else scales.dtype):
            return form
    return f"{stored} is in no form that is known"


def described(entry: Entry) -> str:
    """`F8_E4M3 [2048, 7168]`."""
    return f"{entry.dtype} {list(entry.shape)}"


def _candidates(rows: int, width: int, dtype: str) -> list[Form]:
    """What codes of that type can be, before their scales are looked at."""
    if dtype in PLAIN:
        return [Form(rows, width, Format.BF16, QType.NO)]
    if dtype == "F8_E4M3":
        q_types = (QType.PER_1X32, QType.PER_1X128, QType.PER_TOKEN, QType.PER_TENSOR)
        return [Form(rows, width, Format.FP8, q_type) for q_type in q_types]
    if dtype == "I32":
        return [Form(rows, width * 8, Format.INT4, QType.PER_1X32, 8)]
    if dtype not in ("U8", "I8"):
        return []
    fp4 = Form(rows, width * 2, Format.FP4, QType.PER_1X32, 2)
    wide = [Form(rows, width, Format.INT8, q_type) for q_type in (QType.PER_TOKEN, QType.PER_TENSOR)]
    return [fp4, *wide] if dtype == "I8" else [fp4]


def _scales_fit(form: Form, shape: tuple[int, ...] | None, dtype: str) -> bool:
    if form.q_type is QType.NO or shape is None:
        return form.q_type is QType.NO and shape is None
    shapes = {
        QType.PER_1X32: ((form.rows, -(-form.k // _NARROW)),),
        QType.PER_1X128: ((-(-form.rows // WIDE), -(-form.k // WIDE)),),
        QType.PER_TOKEN: ((form.rows, 1), (form.rows,)),
        QType.PER_TENSOR: ((), (1,), (1, 1)),
    }[form.q_type]
    return shape in shapes and dtype in _scale_dtypes(form)


def _scale_dtypes(form: Form) -> tuple[str, ...]:
    if form.q_type is QType.PER_1X32 and form.number is not Format.INT4:
        return _E8M0
    return (*PLAIN, "F8_E8M0") if form.q_type is QType.PER_1X128 else PLAIN
