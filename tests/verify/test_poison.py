"""Uninitialised memory of every type and kind holds the pattern while poison is active, and nothing else changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import Library

from moeshapes.verify.poison import Pattern, Poison, fill_byte

INDEX = (torch.int16, torch.int32, torch.int64)
FLOATS = tuple(
    getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex64", "complex128"),
    )
    if hasattr(torch, name)
)
WITHOUT_NAN = tuple(
    getattr(torch, name)
    for name in ("uint8", "int8", "uint16", "uint32", "uint64", "float4_e2m1fn_x2", "int4", "uint4", "bits8")
    if hasattr(torch, name)
)
LEFT_ALONE = (torch.bool,)
# Experimental or deprecated in PyTorch, which warns of them, or without operators of their own.
DEPRECATED = ("complex32", "quint8", "qint8", "qint32", "quint4x2", "quint2x4")
SUB_BYTE = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (1, 2, 3, 5, 6, 7))
BITS = ("bit", "bits1x8", "bits2x4", "bits4x2", "bits16")

EMPTY: dict[str, Callable[[torch.dtype], Tensor]] = {
    "empty": lambda dtype: torch.empty((3, 4), dtype=dtype),
    "empty_like": lambda dtype: torch.empty_like(torch.zeros(3, 4), dtype=dtype),
    "empty_permuted": lambda dtype: torch.empty_permuted((3, 4), (1, 0), dtype=dtype),
    "empty_strided": lambda dtype: torch.empty_strided((3, 4), (8, 2), dtype=dtype),
    "new_empty": lambda dtype: torch.zeros(1).new_empty((3, 4), dtype=dtype),
    "new_empty_strided": lambda dtype: torch.zeros(1).new_empty_strided((3, 4), (1, 3), dtype=dtype),
}


def memory(tensor: Tensor) -> set[int]:
    return set(bytes(tensor.untyped_storage()))


@pytest.mark.parametrize("pattern", Pattern)
@pytest.mark.parametrize("variant", EMPTY)
@pytest.mark.parametrize("dtype", [*FLOATS, *WITHOUT_NAN, *INDEX, *LEFT_ALONE], ids=str)
def test_every_empty_tensor_of_every_type_is_filled(dtype: torch.dtype, variant: str, pattern: Pattern) -> None:
    with Poison(pattern) as poison:
        tensor = EMPTY[variant](dtype)
    byte = fill_byte(dtype, pattern)
    assert poison.filled == (byte is not None)
    assert tensor.dtype is dtype
    if byte is not None:
        assert memory(tensor) == {byte}


def test_the_types_here_are_all_that_torch_has() -> None:
    known = {*FLOATS, *WITHOUT_NAN, *INDEX, *LEFT_ALONE}
    known |= {getattr(torch, name) for name in (*DEPRECATED, *SUB_BYTE, *BITS) if hasattr(torch, name)}
    assert {value for value in vars(torch).values() if isinstance(value, torch.dtype)} <= known


def test_every_operator_that_leaves_memory_as_it_was_is_tried() -> None:
    schemas = torch._C._jit_get_all_schemas()
    found = {schema.name for schema in schemas if schema.name.startswith(("aten::empty", "aten::new_empty"))}
    assert found - {"aten::empty_quantized"} == {f"aten::{variant}" for variant in EMPTY}


@pytest.mark.parametrize("pattern", [Pattern.FIRST, Pattern.SECOND])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_types_that_have_a_nan_hold_nan(dtype: torch.dtype, pattern: Pattern) -> None:
    with Poison(pattern):
        tensor = torch.empty(8, dtype=dtype)
    values = tensor if dtype.is_complex or dtype.itemsize > 1 else tensor.float()
    assert bool(values.isnan().all())


@pytest.mark.parametrize("dtype", WITHOUT_NAN, ids=str)
def test_types_without_a_nan_get_two_finite_patterns(dtype: torch.dtype) -> None:
    assert (fill_byte(dtype, Pattern.FIRST), fill_byte(dtype, Pattern.SECOND)) == (0x77, 0xFF)
    assert fill_byte(dtype, Pattern.INDEX) is None


@pytest.mark.parametrize("dtype", INDEX, ids=str)
def test_indices_are_poisoned_in_a_run_of_their_own(dtype: torch.dtype) -> None:
    assert fill_byte(dtype, Pattern.FIRST) is fill_byte(dtype, Pattern.SECOND) is None
    with Poison(Pattern.INDEX):
        indices, values = torch.empty(4, dtype=dtype), torch.zeros(4).new_empty(0)
    assert bool((indices > 1 << 14).all())
    assert values.numel() == 0


def test_bytes_that_are_scales_are_nan_under_the_second_pattern() -> None:
    assert math.isnan(torch.tensor([Pattern.SECOND.value], dtype=torch.uint8).view(torch.float8_e8m0fnu).float().item())


def test_nothing_is_filled_before_or_after() -> None:
    before = torch.empty(4)
    before.zero_()
    poison = Poison(Pattern.FIRST)
    with poison:
        inside = torch.empty(4)
    assert poison.filled == 1
    assert torch.empty_like(before).zero_().sum() == 0
    assert poison.filled == 1
    assert before.tolist() == [0.0] * 4
    assert bool(inside.isnan().all())


def test_poison_survives_inference_mode_and_an_exception() -> None:
    with torch.inference_mode(), Poison(Pattern.FIRST):
        assert bool(torch.empty(4).isnan().all())
    poison = Poison(Pattern.FIRST)
    with pytest.raises(KeyError), poison:
        raise KeyError
    torch.empty(4)
    assert poison.filled == 0


def test_tensors_of_no_elements_are_left() -> None:
    with Poison(Pattern.FIRST) as poison:
        assert torch.empty((0, 4)).shape == (0, 4)
        assert torch.empty(0, dtype=torch.float4_e2m1fn_x2).numel() == 0
    assert poison.filled == 0


def test_views_and_results_of_ordinary_operators_are_as_without() -> None:
    base = torch.arange(12.0).reshape(3, 4)

    def compute() -> list[Tensor]:
        view = base[1:, ::2]
        joined = torch.cat((base, base.T.reshape(3, 4)))
        return [
            *(view, view.contiguous(), base.clone(), base.to(torch.bfloat16), base + 1, base @ base.T, joined),
            *(torch.zeros(3), torch.ones_like(base), torch.full((2,), 7), base.new_zeros(2), torch.arange(5)),
            *(
                base.sort(descending=True).values,
                base.cumsum(0),
                torch.where(base > 3, base, 0),
                base.bfloat16().float(),
            ),
            torch.randn(4, generator=torch.Generator().manual_seed(1)),
        ]

    plain = compute()
    for pattern in Pattern:
        with Poison(pattern) as poison:
            poisoned = compute()
        assert poison.filled == 0
        assert all(torch.equal(one, other) for one, other in zip(plain, poisoned, strict=True))
    assert base.tolist() == torch.arange(12.0).reshape(3, 4).tolist()


def test_an_output_given_by_the_caller_keeps_its_memory() -> None:
    mine = torch.zeros(4)
    with Poison(Pattern.FIRST):
        torch.empty(4, out=mine)
        torch.add(torch.ones(4), 1, out=mine)
    assert mine.tolist() == [2.0] * 4


def test_what_is_written_over_poison_stays() -> None:
    with Poison(Pattern.SECOND):
        buffer = torch.empty((2, 4), dtype=torch.bfloat16)
        buffer[0] = 1
    assert buffer[0].tolist() == [1.0] * 4
    assert bool(buffer[1].isnan().all())


# --- operators of other libraries


@contextmanager
def library_of(**implementations: tuple[str, Callable[..., Any]]) -> Iterator[Any]:
    """Operators of a library of their own, by name: their signature and what computes them on a CPU."""
    library = Library("moeshapes_of_test", "FRAGMENT")
    for name, (signature, function) in implementations.items():
        library.define(name + signature)
        library.impl(name, function, "CPU")
    try:
        yield torch.ops.moeshapes_of_test
    finally:
        library._destroy()


def test_what_a_librarys_operator_allocates_is_filled() -> None:
    """AITER makes one operator of all of fused_moe, and calls others within it."""
    inner = "(Tensor x) -> Tensor", torch.empty_like
    outer = "(Tensor x) -> Tensor", lambda x: torch.ops.moeshapes_of_test.inner(x.new_empty(4))
    with library_of(inner=inner, outer=outer) as ops:
        for mode in (torch.no_grad(), torch.inference_mode()):
            with mode, Poison(Pattern.FIRST) as poison:
                assert bool(ops.outer(torch.zeros(1)).isnan().all())
            assert poison.filled == 2
            torch.empty(4)
            assert poison.filled == 2


def test_a_librarys_operator_is_given_what_it_was_called_with() -> None:
    seen: list[object] = []

    def note(
        x: Tensor, others: list[Tensor], n: int, word: str | None = None, dtype: torch.dtype | None = None
    ) -> Tensor:
        seen.extend((getattr(x, "is_shuffled", False), len(others), n, word, dtype))
        return x.new_empty(0)

    x = torch.zeros(2)
    x.is_shuffled = True  # type: ignore[attr-defined]
    signature = "(Tensor x, Tensor[] others, SymInt n, str? word=None, ScalarType? dtype=None) -> Tensor"
    with library_of(note=(signature, note)) as ops, Poison(Pattern.FIRST):
        ops.note(x, [x, x], 3, word="interleave", dtype=torch.bfloat16)
    assert seen == [True, 2, 3, "interleave", torch.bfloat16]


def test_a_librarys_operator_runs_where_pytorch_would_run_it() -> None:
    """On the other device where only some of its tensors are on the CPU, as AITER gives its operators one of no use."""
    with library_of(place=("(Tensor x, Tensor[] others) -> Tensor", lambda x, others: x.new_empty(1))) as ops:
        on_meta = Library("moeshapes_of_test", "IMPL")
        on_meta.impl("place", lambda x, others: torch.empty(2, device="meta"), "Meta")
        here, away = torch.zeros(1), torch.zeros(1, device="meta")
        for arguments in ((here, [here]), (here, [here, away]), (away, [here])):
            plain = ops.place(*arguments)
            with Poison(Pattern.FIRST):
                assert (ops.place(*arguments).device, plain.shape) == (plain.device, ops.place(*arguments).shape)
        on_meta._destroy()


def test_a_librarys_operator_may_raise_and_be_given_no_tensor() -> None:
    def refuse(x: Tensor) -> Tensor:
        raise KeyError("refused")

    with library_of(refuse=("(Tensor x) -> Tensor", refuse)) as ops:
        with Poison(Pattern.FIRST) as poison, pytest.raises(KeyError, match="refused"):
            ops.refuse(torch.zeros(1))
        torch.empty(4)
        assert poison.filled == 0
    with Poison(Pattern.FIRST), torch.profiler.record_function("an operator without tensors"):
        pass
