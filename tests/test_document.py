from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declared import sound_document
from moeshapes.document import MAX_BYTES, MAX_DEPTH, load_document, parse_document
from moeshapes.findings import Place


def faults(data: bytes | str) -> list[str]:
    """`line:column rule` of each finding."""
    _, findings = parse_document(data.encode() if isinstance(data, str) else data, "d.yaml")
    return [f"{f.place.line}:{f.place.column} {f.rule.name}" for f in findings]


def test_every_value_and_key_has_its_place() -> None:
    document = sound_document("a: 1\nb:\n  - x\n  - {c: é, d: [2]}\n")
    assert document.value == {"a": 1, "b": ["x", {"c": "é", "d": [2]}]}
    assert document.place("a") == Place("demo.yaml", 1, 4)
    assert document.key_place("b") == Place("demo.yaml", 2, 1)
    assert document.place("b", 1, "d", 0) == Place("demo.yaml", 4, 16)
    assert document.key_place("b", 1) == Place("demo.yaml", 4, 5)
    assert document.place("b", 1, "missing", 7) == document.place("b", 1)


def test_an_empty_document_is_nothing_at_its_start() -> None:
    document = sound_document("# only a comment\n")
    assert document.value is None
    assert document.place("tp") == Place("demo.yaml", 1, 1)


def test_quoted_text_stays_text() -> None:
    assert sound_document("""a: "4"\nb: 'true'\nc: |\n  7\n""").value == {"a": "4", "b": "true", "c": "7\n"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2\n", ["2:1 duplicate-key"]),
        ("a: {b: 1, b: 2}\na: {b: 1}\n", ["1:11 duplicate-key", "2:1 duplicate-key"]),
        ("a: &x 1\nb: *x\n", ["1:4 yaml-feature", "2:4 yaml-feature"]),
        ("a: !!int 1\n", ["1:4 yaml-feature"]),
        ("a: !!python/object/apply:os.system [id]\n", ["1:4 yaml-feature"]),
        ("a: 1\n---\na: 2\n", ["2:1 yaml-feature"]),
        ("1: a\n", ["1:1 yaml-feature"]),
        ("true: a\n~: b\n", ["1:1 yaml-feature", "2:1 yaml-feature"]),
        ("[a, b]: c\n", ["1:1 yaml-feature"]),
        ("a: [1\n", ["2:1 yaml-syntax"]),
        ("a: b: c\n", ["1:5 yaml-syntax"]),
        ("a:\n\tb: 1\n", ["2:1 unreadable-document"]),
        ("\ufeffa: 1\n", ["1:1 unreadable-document"]),
        ("a: 1\nb: \x1b[31m\n", ["2:4 unreadable-document"]),
        ("a: x\u202ey\n", ["1:5 unreadable-document"]),
        ("a: x\u00a0y\n", ["1:5 unreadable-document"]),
        ("a: x\u2028y\n", ["1:5 unreadable-document"]),
        (b"a: 1\nb: \xff\n", ["2:4 unreadable-document"]),
        ("a: 1\n".encode("utf-16"), ["1:1 unreadable-document"]),
        ("a: " + "1" * 50 + "\n", ["1:4 yaml-feature"]),
        ("a: 0x" + "f" * 3000 + "\n", ["1:4 yaml-feature"]),
        ("a: " + "x" * 5000 + "\n", ["1:4 yaml-feature"]),
    ],
)
def test_what_is_refused(text: bytes | str, expected: list[str]) -> None:
    assert faults(text) == expected


def test_windows_line_ends_are_read() -> None:
    assert sound_document("a: 1\r\nb: x\r\n").value == {"a": 1, "b": "x"}


def test_the_first_of_two_values_counts() -> None:
    document, findings = parse_document(b"a: 1\nb: [2]\na: {c: 3}\n", "d.yaml")
    assert document
    assert document.value == {"a": 1, "b": [2]}
    assert [str(finding.place) for finding in findings] == ["d.yaml:3:1"]


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_depth_is_limited(brackets: str) -> None:
    left, right = ("[", "]") if brackets == "[]" else ("{a: ", "}")
    assert not faults(left * MAX_DEPTH + "1" + right * MAX_DEPTH)
    assert faults(left * (MAX_DEPTH + 1) + "1" + right * (MAX_DEPTH + 1))


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 100_000,
        "{a: " * 40_000,
        "a: &a [1]\nb: [" + "*a," * 60_000 + "]",
        "- " * 100_000,
        "? " * 100_000,
        "a\n" * 100_000,
    ],
    ids=["lists", "mappings", "aliases", "block lists", "keys", "lines"],
)
def test_bombs_become_a_few_findings(bomb: str) -> None:
    assert 1 <= len(faults(bomb)) <= 100


def test_only_plain_files_of_bounded_size_are_read(tmp_path: Path) -> None:
    large, link, fifo = tmp_path / "large.yaml", tmp_path / "link.yaml", tmp_path / "fifo.yaml"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    link.symlink_to(tmp_path / "elsewhere.yaml")
    os.mkfifo(fifo)
    for path in (large, link, fifo, tmp_path, tmp_path / "absent.yaml"):
        document, findings = load_document(path, "shown.yaml")
        assert document is None
        assert [str(f.place) for f in findings] == ["shown.yaml"]


# JSON writes characters beyond the first plane as two escapes, which YAML does not know; a YAML key ends at 1024.
texts = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=30)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(texts, children, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(texts, json_values, max_size=5))
def test_json_is_read_as_json(value: dict[str, object]) -> None:
    """JSON is YAML, and the json module is an independent reading of it."""
    document, findings = parse_document(json.dumps(value).encode(), "d.yaml")
    assert not findings
    assert document
    assert document.value == value


markup = st.text("[]{}:,-?&*!|>'\"#%@` \na1", max_size=80)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode) | markup.map(str.encode))
def test_nothing_raises_and_places_are_in_the_file(data: bytes) -> None:
    document, findings = parse_document(data, "d.yaml")
    assert document or findings
    lines = data.count(b"\n") + data.count(b"\r") + 1
    assert all(1 <= finding.place.line <= lines for finding in findings)
