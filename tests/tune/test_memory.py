"""What earlier runs found is recalled for the very same question, and for no file that somebody spoilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from moeshapes.tune.memory import Memory

QUESTION = ["screen", {"model_dim": 256}, (1, 2)]


def test_an_answer_is_recalled_for_its_own_question(tmp_path: Path) -> None:
    Memory(tmp_path).keep(QUESTION, {"us": 1.5})
    assert Memory(tmp_path).recall(QUESTION) == {"us": 1.5}
    assert Memory(tmp_path).recall(["screen", {"model_dim": 512}, (1, 2)]) is None


def test_a_fresh_memory_knows_its_own_answers_alone(tmp_path: Path) -> None:
    Memory(tmp_path).keep(QUESTION, {"us": 1.5})
    fresh = Memory(tmp_path, fresh=True)
    assert fresh.recall(QUESTION) is None
    fresh.keep(QUESTION, {"us": 2.5})
    assert fresh.recall(QUESTION) == {"us": 2.5}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"of": 1, "found": {"us": 1}}',
        b'{"found": {"us": 1}}',
        b" " * 70_000,
    ],
    ids=["empty", "brace", "list", "null", "bytes", "deep", "another question", "no question", "large"],
)
def test_a_spoilt_file_is_no_answer(content: bytes, tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.keep(QUESTION, {"us": 1.5})
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    assert memory.recall(QUESTION) is None
