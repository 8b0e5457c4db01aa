"""Any slice of a stored matrix has the values that the whole has there."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

import checkpoints
from checkpoints import Draw
from moeshapes.checkpoint.fault import CheckpointError
from moeshapes.checkpoint.form import Form, form_of
from moeshapes.checkpoint.index import SINGLE, Index, entries_of
from moeshapes.checkpoint.reader import Reader, read_matrix
from moeshapes.checkpoint.stored import Matrix
from moeshapes.quant import Quantised
from naive_quant import bf16, byte_value, unpacked, values_of

FORMS = (
    "plain", "fp8_block", "fp8_block_e8m0", "fp8_channel", "fp8_tensor", "mxfp8", "mxfp4", "mxfp4_v4", "mxfp4_packed",
    "int4_packed", "int8_channel",
)  # fmt: skip


def values(tensors: dict[str, Tensor], form: Form) -> Tensor:
    """fp64, in numpy, code by code."""
    codes = next(t for name, t in tensors.items() if name in (".weight", ".weight_packed"))
    scales = next((t for name, t in tensors.items() if "scale" in name), None)
    if scales is None:
        return codes.double()
    number = form.number.value
    if number == "int4":
        words = codes.numpy().view("uint32").astype("int64")
        plain = torch.stack([torch.from_numpy((words >> 4 * n & 15) - 8) for n in range(8)], -1).flatten(1).double()
    elif number == "int8":
        plain = codes.double()
    else:
        stored = codes.view(torch.uint8).numpy()
        plain = torch.from_numpy(values_of(unpacked(stored, number), number))
    if scales.element_size() == 1:
        wide = (
            torch.tensor([byte_value(int(b)) for b in scales.view(torch.uint8).flatten()]).double().view(scales.shape)
        )
    else:
        wide = scales.double()
    if wide.dim() < 2:
        return plain * wide
    rows, columns = torch.arange(plain.shape[0]), torch.arange(plain.shape[1])
    down, across = {"per_1x128": (128, 128), "per_1x32": (1, 32)}.get(form.q_type.value, (1, plain.shape[1]))
    return plain * wide[rows // down][:, columns // across]


def stored(folder: Path, tensors: dict[str, Tensor]) -> tuple[Index, Matrix]:
    save_file({f"m{name}": tensor.contiguous() for name, tensor in tensors.items()}, folder / SINGLE)
    index = Index(folder, {f"m{name}": SINGLE for name in tensors}, {}, SINGLE)
    entries, findings = entries_of(index, index.shard_of)
    assert not findings
    codes = next(entry for name, entry in entries.items() if name in ("m.weight", "m.weight_packed"))
    scales = next((entry for name, entry in entries.items() if "scale" in name), None)
    form = form_of(codes, scales, False)
    assert isinstance(form, Form), form
    return index, Matrix(codes, scales, form)


@settings(max_examples=60)
@given(data=st.data(), kind=st.sampled_from(FORMS), seed=st.integers(0, 1000))
def test_a_slice_has_the_values_of_the_whole(data: st.DataObject, kind: str, seed: int) -> None:
    rows, k = data.draw(st.sampled_from([128, 192, 256])), data.draw(st.sampled_from([128, 160, 256, 320]))
    tensors = getattr(checkpoints, kind)(Draw(seed), rows, k)
    first, last = sorted(data.draw(st.lists(st.integers(0, rows), min_size=2, max_size=2, unique=True)))
    left, right = sorted(data.draw(st.lists(st.integers(0, k), min_size=2, max_size=2, unique=True)))
    with tempfile.TemporaryDirectory() as name:
        index, matrix = stored(Path(name), tensors)
        assert (matrix.form.rows, matrix.form.k) == (rows, k)
        with Reader(index) as reader:
            found = read_matrix(reader, matrix, range(first, last), range(left, right))
    expected = values(tensors, matrix.form)[first:last, left:right]
    if isinstance(found, Quantised):
        whole = found.dequantise(torch.float64)
        assert torch.equal(whole[:, : right - left], expected)
        assert not whole[:, right - left :].any()
    else:
        # Products of fp8 and fp32 round in fp32.
        assert torch.allclose(found.double(), expected, rtol=2**-23, atol=0)


@settings(max_examples=30)
@given(kind=st.sampled_from(FORMS), block=st.integers(0, 1), ends=st.integers(1, 128))
def test_slices_that_begin_with_blocks_are_codes(kind: str, block: int, ends: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        index, matrix = stored(Path(name), getattr(checkpoints, kind)(Draw(1), 256, 256))
        with Reader(index) as reader:
            begin = 128 * block
            found = read_matrix(reader, matrix, range(begin, begin + 64), range(begin, begin + 2 * -(-ends // 2)))
    assert isinstance(found, Quantised)


def test_a_slices_bytes_are_counted(tmp_path: Path) -> None:
    index, matrix = stored(tmp_path, checkpoints.mxfp4(Draw(1), 128, 256))
    with Reader(index) as reader:
        read_matrix(reader, matrix, range(32, 64), range(64, 128))
        assert reader.bytes_read == 32 * 32 + 32 * 2
        assert reader.tensors == {"m.weight", "m.weight_scale"}
        header = reader.header_bytes
    content = (tmp_path / SINGLE).read_bytes()
    assert header == 8 + int.from_bytes(content[:8], "little")


def test_a_copy_outlives_the_file(tmp_path: Path) -> None:
    index, matrix = stored(tmp_path, checkpoints.plain(Draw(1), 128, 256))
    with Reader(index) as reader:
        found = read_matrix(reader, matrix, range(4), range(8))
    (tmp_path / SINGLE).write_bytes(b"\0" * (tmp_path / SINGLE).stat().st_size)
    assert isinstance(found, Quantised)
    assert torch.equal(found.codes, checkpoints.plain(Draw(1), 128, 256)[".weight"][:4, :8])


def test_a_shard_that_has_shrunk_since_is_an_error_of_the_checkpoint(tmp_path: Path) -> None:
    index, matrix = stored(tmp_path, checkpoints.plain(Draw(1), 128, 256))
    with (tmp_path / SINGLE).open("r+b") as stream:
        stream.truncate(1000)
    with Reader(index) as reader, pytest.raises(CheckpointError, match="cannot be read") as caught:
        read_matrix(reader, matrix, range(4), range(8))
    assert [finding.rule.name for finding in caught.value.findings] == ["unreadable-checkpoint"]


def test_bf16_scales_are_exact(tmp_path: Path) -> None:
    tensors = checkpoints.fp8_channel(Draw(1), 128, 128)
    index, matrix = stored(tmp_path, tensors)
    with Reader(index) as reader:
        found = read_matrix(reader, matrix, range(128), range(128))
    assert isinstance(found, Quantised)
    assert found.scales is not None
    expected = tensors[".weight_scale"].view(torch.int16).numpy().view(bf16).astype("float32")
    assert found.scales.numpy().tolist() == expected.tolist()
