"""Log lines of fused_moe: old and new form, people's short form, and lines that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moeshapes.log_line import Lookup, parse_key, parse_log_line

NEW = (
    "[aiter] [fused_moe] using 2stage default for ('gfx950', 256, 16384, 6144, 256, 257, 9, <ActivationType.Silu: 0>,"
    " 'torch.bfloat16', 'torch.bfloat16', 'torch.bfloat16', 'QuantType.No', True, False)"
)
OLD = NEW.replace("'gfx950', ", "")


@pytest.mark.parametrize("line", [NEW, OLD, NEW.replace("2stage", "1stage xbf16")], ids=["new", "old", "xbf16"])
def test_a_miss_gives_its_key(line: str) -> None:
    lookup = parse_log_line(f"2026-08-22 10:00:00 INFO {line}\n")
    assert isinstance(lookup, Lookup)
    assert lookup.missed
    assert (lookup.key.gfx, lookup.key.cu_num) == ("gfx950", 256)
    assert lookup.key.shape.cells() == [
        *("16384", "6144", "256", "257", "9", "ActivationType.Silu", "torch.bfloat16"),
        *("torch.bfloat16", "torch.bfloat16", "QuantType.No", "1", "0"),
    ]


def test_a_hit_is_no_miss() -> None:
    hit = NEW.replace("default", "(kernelName1='a', kernelName2='b')")
    lookup = parse_log_line(hit)
    assert isinstance(lookup, Lookup)
    assert not lookup.missed


def test_a_key_as_people_shorten_it() -> None:
    key = parse_key("gfx950,256,8192,4096,192,192,8,Silu,bf16,float8_e4m3fn,float8_e4m3fn,per_Tensor,1,0")
    assert not isinstance(key, str)
    assert (key.shape.expert, key.shape.inter_dim, key.shape.q_type) == (192, 192, "QuantType.per_Tensor")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (NEW.replace("True, False", "True"), "13 fields"),
        (OLD.replace("True, False", "True"), "12 fields"),
        (NEW.replace("6144", "many"), "`model_dim` is `many`"),
        (OLD.replace("256, 16384", "7, 16384"), "7 compute units"),
        (NEW[:150], "cut off"),
    ],
)
def test_what_cannot_be_read_is_said(line: str, fault: str) -> None:
    found = parse_log_line(line)
    assert isinstance(found, str)
    # A new line that lost its last field has as many as an old one: its first field is then no cu_num.
    assert fault in found or "`cu_num` is `gfx950`" in found


@given(st.text(max_size=300))
def test_any_other_text_is_about_no_lookup_or_is_refused(text: str) -> None:
    assert parse_log_line(text) is None
    assert not isinstance(parse_log_line(f"[fused_moe] using 2stage default for ({text})"), Lookup)
