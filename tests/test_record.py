"""Records on disk: one file a job, whole or not there, and a digest that is stable."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from moeshapes import record as records
from moeshapes.record import RecordError, RecordStore, digest, parse_record, read_content
from process import environment

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(plain, plain)
def test_equal_data_has_one_digest_and_other_data_another(one: object, other: object) -> None:
    assert (digest(one) == digest(other)) == (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest([1, 2]) != digest([2, 1])


def test_a_digest_is_the_same_in_another_process() -> None:
    code = "from moeshapes.record import digest; print(digest({'b': {'x': None}, 'a': 'é'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == digest({"a": "é", "b": {"x": None}})


def test_a_file_is_named_after_its_job_and_ends_with_a_newline(tmp_path: Path) -> None:
    path = RecordStore(tmp_path / "new").save({"job": "abc", "z": 1, "a": 2})
    assert path == tmp_path / "new" / "abc.json"
    assert path.read_text() == '{\n "a": 2,\n "job": "abc",\n "z": 1\n}\n'


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert RecordStore(tmp_path / "none").load("abc") is None
    (tmp_path / "abc.json").mkdir()
    assert RecordStore(tmp_path).load("abc") is None


def test_a_save_that_fails_leaves_the_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RecordStore(tmp_path)
    store.save({"job": "abc", "old": True})

    def fail(source: object, target: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        store.save({"job": "abc", "old": False})
    assert [path.name for path in tmp_path.iterdir()] == ["abc.json"]
    assert json.loads(store.path("abc").read_text())["old"]


def test_the_schema_is_sound_and_describes_every_part() -> None:
    schema = json.loads((resources.files("moeshapes") / "schema" / "record.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert schema["properties"]["format"]["const"] == records.RECORD_FORMAT
    assert sorted(schema["required"]) == sorted(schema["properties"])


def test_the_verifiers_digest_changes_with_any_of_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Path(records.__file__).parent
    for name in records._VERIFIER_SOURCES:
        for source in [package / name] if name.endswith(".py") else sorted((package / name).rglob("*.py")):
            copy = tmp_path / source.relative_to(package)
            copy.parent.mkdir(exist_ok=True)
            copy.write_bytes(source.read_bytes())
    before = records.verifier_digest()
    monkeypatch.setattr(records, "__file__", str(tmp_path / "record.py"))
    assert records.verifier_digest() == before
    seen = {before}
    for copy in sorted(tmp_path.rglob("*.py")):
        copy.write_bytes(copy.read_bytes() + b"\n")
        seen.add(records.verifier_digest())
    assert len(seen) == 1 + len(list(tmp_path.rglob("*.py")))


def test_torch_is_not_imported_for_records() -> None:
    code = "import moeshapes.record, sys; assert not {'torch', 'pandas', 'jsonschema'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


class _AnyRecord:
    """Finds nothing wrong, as a schema does where a number has to be within limits and is NaN."""

    def is_valid(self, record: object) -> bool:
        return True


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_nan_is_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setattr(records, "_validator", _AnyRecord)
    store = RecordStore(tmp_path)
    store.path("abc").write_text('{"job": "abc", "over_limit": 0.5}')
    assert store.load("abc")
    store.path("abc").write_text(f'{{"job": "abc", "over_limit": {word}}}')
    assert store.load("abc") is None


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b'{"a": 1, "a": 2}', "a mapping has the same key twice"),
        (b"[" * 200_000, "not JSON that can be read"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON that can be read"),
        (b"\xff\xfe", "not JSON that can be read"),
        (b'{"a": ]}', "not JSON: Expecting value at line 1, column 7"),
        (b'{"a": NaN}', "NaN is no number of JSON"),
        (b"[]", "`the record`: [] is not of type 'object'"),
    ],
)
def test_what_is_no_record_is_said_in_one_line(content: bytes, fault: str) -> None:
    with pytest.raises(RecordError) as refused:
        parse_record(content)
    assert str(refused.value).startswith(fault[:60])


def test_a_fault_quotes_little_of_a_huge_record() -> None:
    with pytest.raises(RecordError) as refused:
        parse_record(json.dumps({"x" * 50_000: "y" * 50_000}).encode())
    assert len(str(refused.value)) < 400


def test_files_that_are_none_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"x" * 11)
    for name, fault in (("link", "not a plain file"), (".", "not a plain file"), ("large", "larger than 0 KiB")):
        with pytest.raises(RecordError, match=fault):
            read_content(tmp_path / name, 10)
    assert read_content(tmp_path / "large", 11) == b"x" * 11
    with pytest.raises(RecordError, match="cannot be read: No such file"):
        read_content(tmp_path / "absent", 10)


def test_a_signature_goes_with_the_record_that_it_is_of(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "build", tmp_path / "named")
    path = store.save({"job": "abc"}, "csv/name")
    signature = path.with_name("name.json.sig")
    signature.write_text("of the first one")
    assert store.save({"job": "abc", "other": True}, "csv/name") == path
    assert not signature.exists()
