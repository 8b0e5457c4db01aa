from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declared import MODEL, SHAPE, write_repository
from moeshapes.expand import Declarations
from moeshapes.questions import (
    Circumstances,
    NotAnswerableError,
    ask_about_key,
    ask_about_model,
    is_key_or_log_line,
)
from moeshapes.recipe import Format
from moeshapes.repository import load_declarations

KEY = "gfx950,256,8,6144,512,257,9,Silu,bf16,fp4x2,fp4x2,per_1x32,1,0"
FNUZ = "float8_e4m3fnuz"
LOGGED = (
    "[aiter] [fused_moe] using 2stage default for ('gfx950', 256, 16384, 6144, 256, 257, 9, <ActivationType.Silu: 0>,"
    " 'torch.bfloat16', 'torch.bfloat16', 'torch.bfloat16', 'QuantType.No', True, False)"
)


@pytest.fixture
def declarations(tmp_path: Path) -> Declarations:
    shapes = {
        "demo/tp4": SHAPE,
        "demo/tp2": SHAPE.replace("tp: 4", "tp: 2"),
        "demo/ep4": SHAPE.replace("tp: 4", "tp: 4\nep: 4"),
        "other/tp4": SHAPE.replace("demo", "other").replace("[1, 32]", "[64]"),
    }
    models = {"demo": MODEL, "other": MODEL.replace("Demo", "Other"), "unserved": MODEL.replace("Demo", "Unserved")}
    found, findings = load_declarations(write_repository(tmp_path, shapes, models))
    assert not findings
    return found


def asked(declarations: Declarations, name: str, tp: int | None = None, expert_mask: bool = False) -> list[str]:
    questions = ask_about_model(name, tp, [8], Circumstances(expert_mask), declarations)
    return [question.subject.partition("#")[0] for question in questions]


def test_a_model_by_any_of_its_names(declarations: Declarations) -> None:
    for name in ("demo", "Demo", "example/demo", "DEMO ", "dem"):
        assert asked(declarations, name, tp=4) == ["demo/tp4"]
    assert asked(declarations, "demo") == ["demo/tp2", "demo/tp4"]
    assert asked(declarations, "demo/tp2") == ["demo/tp2"]
    assert asked(declarations, "demo", tp=4, expert_mask=True) == ["demo/ep4"]


@pytest.mark.parametrize(
    ("name", "tp", "message"),
    [
        ("dmeo", None, "there is no model `dmeo`: did you mean `demo`?"),
        ("demo/tp8", None, "there is no shape `demo/tp8`: did you mean `demo/ep4` or `demo/tp2` or `demo/tp4`?"),
        ("othr/tp4", None, "there is no shape `othr/tp4`: did you mean `other/tp4`?"),
        ("exmaple/demo", None, "there is no model `exmaple/demo`: did you mean `example/demo`?"),
        ("xyz", None, "see models/"),
        ("", None, "did you mean `demo` or `other` or `unserved`?"),
        ("unserved", None, "no shape file serves `unserved`"),
        ("demo", 8, r"nothing is declared with tp 8; there are .*demo/tp2 \(tp 2, ep 1\), demo/tp4 \(tp 4, ep 1\)"),
        ("demo/ep4", None, r"tensor parallelism alone \(add --ep\)"),
    ],
)
def test_what_is_not_there(declarations: Declarations, name: str, tp: int | None, message: str) -> None:
    with pytest.raises(NotAnswerableError, match=message):
        asked(declarations, name, tp)


def test_a_key_and_a_log_line() -> None:
    (question,) = ask_about_key(KEY, (), Circumstances())
    assert question.call.tokens == 8
    assert question.call.key.shape.q_dtype_a == "torch.float4_e2m1fn_x2"
    (logged,) = ask_about_key(LOGGED, (), Circumstances())
    assert (logged.call.tokens, logged.call.weight) == (16384, Format.BF16)
    assert [q.call.tokens for q in ask_about_key(f"({KEY})", (100, 300), Circumstances())] == [100, 300]
    assert is_key_or_log_line(KEY)
    assert not is_key_or_log_line("glm-5.2/tp4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b", "2 fields.*; a key is gfx, cu_num, token, .*: gfx950,256,"),
        (KEY.replace(",8,", ",96,"), "no call looks up 96 tokens"),
        (KEY.replace("fp4x2,fp4x2", "i8,fp4x2"), "no recipe"),
        (
            KEY.replace("fp4x2,fp4x2,per_1x32", f"{FNUZ},{FNUZ},per_Token"),
            "its fp8 is torch.float8_e4m3fn",
        ),
        ("[fused_moe] using 2stage default for (", "cut off"),
    ],
)
def test_keys_that_nothing_asks_for(text: str, message: str) -> None:
    with pytest.raises(NotAnswerableError, match=message):
        ask_about_key(text, (), Circumstances())


def test_a_key_as_it_is_printed_is_the_same_key() -> None:
    (question,) = ask_about_key(KEY, (), Circumstances())
    printed = str(question.call.key)
    assert is_key_or_log_line(printed)
    assert ask_about_key(printed, (), Circumstances()) == [question]


def test_circumstances_change_the_call() -> None:
    changed = Circumstances(True, None, "interleave", True, True, True, {"AITER_KSPLIT": "2"})
    (question,) = ask_about_key(KEY, (), changed)
    call = question.call
    assert (call.topk_width, call.topk) == (10, 9)
    assert (call.gate_mode, call.bias, call.shuffled, call.flydsl) == ("interleave", True, False, False)
    assert call.env == {"AITER_KSPLIT": "2"}
    (narrow,) = ask_about_key(KEY, (), Circumstances(expert_mask=True, topk_width=9))
    assert narrow.call.topk == 8
    with pytest.raises(NotAnswerableError, match="leaves no expert"):
        ask_about_key(KEY, (), Circumstances(expert_mask=True, topk_width=1))


@given(st.text(max_size=300))
def test_any_text_is_answered_or_refused(text: str) -> None:
    try:
        assert ask_about_key(text, (), Circumstances())
    except NotAnswerableError:
        return
