"""Which records may be relied on: forged, renamed, broken and linked ones are not, and say why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keys_of_ssh import make_signer, needs_ssh_keygen
from moeshapes.claim import Claim, claims_of
from moeshapes.gate.attestation import Attestations
from moeshapes.repository import load_declarations
from pull_requests import FORGERIES, Edit, prove, rows_at
from small_repository import TABLE, tuned_line, write_small_repository


def written(root: Path, **how: Any) -> str:
    """The path of a record that a test then spoils."""
    (path,) = prove(write_small_repository(root, tuned_line(8)), **how)
    return path.relative_to(root).as_posix()


def fault(root: Path, path: str, signers: bytes | None = None) -> tuple[str, str]:
    attestations = Attestations(root, signers)
    assert attestations.at(path) is None
    assert attestations.at(path) is None
    (finding,) = attestations.faults.values()
    assert finding.place.file == path
    return finding.rule.name, finding.message


def test_a_record_that_verify_wrote(tmp_path: Path) -> None:
    path = written(tmp_path)
    attestations = Attestations(tmp_path)
    statement = attestations.at(path)
    assert statement
    assert statement is attestations.at(path)
    assert (statement.status, attestations.faults) == ("proven", {})


def test_it_stands_where_the_row_claims_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    declarations, _ = load_declarations(tmp_path)
    (row,) = rows_at(tmp_path, 8, TABLE)
    (claim,) = claims_of(row, declarations)
    assert claim.path == path
    assert claim.among({claim.file: [f"generated/records/former/{claim.file}", path]}) == path
    assert claim.among({claim.file: [f"generated/records/former/{claim.file}"]}) != path
    assert Claim(row, claim.use).among({}) is None


@pytest.mark.parametrize(("edit", "said"), FORGERIES.values(), ids=FORGERIES)
def test_forged_records(tmp_path: Path, edit: Edit, said: str) -> None:
    rule, message = fault(tmp_path, written(tmp_path, edit=edit, token=8))
    assert rule == "bad-record"
    assert message.startswith(said)


def test_files_that_are_no_records(tmp_path: Path) -> None:
    path = written(tmp_path)
    for content in (b"", b"{", b"null", b"[" * 100_000, b" " * (2 << 20)):
        (tmp_path / path).write_bytes(content)
        assert fault(tmp_path, path)[0] == "bad-record"
    (tmp_path / path).unlink()
    (tmp_path / path).symlink_to("/dev/zero")
    assert fault(tmp_path, path) == ("bad-record", "not a plain file: links, folders and devices are not read")


@needs_ssh_keygen
def test_with_signers_a_record_must_be_signed(tmp_path: Path) -> None:
    signer = make_signer(tmp_path / "keys", "a@example.invalid")
    path = written(tmp_path, signer=signer)
    assert Attestations(tmp_path, signer.allowed.encode()).at(path)
    assert fault(tmp_path, path, b"")[0] == "unsigned-record"
    signature = tmp_path / f"{path}.sig"
    signature.write_bytes(b"x" * (1 << 20))
    assert fault(tmp_path, path, signer.allowed.encode()) == (
        "unsigned-record",
        "its signature: larger than 64 KiB",
    )
    signature.unlink()
    assert fault(tmp_path, path, signer.allowed.encode()) == ("unsigned-record", "the record is not signed")
    signature.symlink_to("/dev/zero")
    assert fault(tmp_path, path, signer.allowed.encode())[1].startswith("its signature: not a plain file")


@needs_ssh_keygen
def test_the_signature_of_another_record_does_not_count(tmp_path: Path) -> None:
    signer = make_signer(tmp_path / "keys", "a@example.invalid")
    root = write_small_repository(tmp_path, tuned_line(8), tuned_line(1))
    one, other = (prove(root, token, signer=signer)[0] for token in (8, 1))
    signed(other).write_bytes(signed(one).read_bytes())
    path = other.relative_to(root).as_posix()
    assert fault(root, path, signer.allowed.encode())[1].startswith("not a good signature of this content")


def signed(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


@settings(max_examples=60)
@given(data=st.data())
def test_nothing_in_a_record_makes_it_raise(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("any")
    path = written(root)
    made = json.loads((root / path).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        _spoil(made, data)
    (root / path).write_text(json.dumps(made))
    attestations = Attestations(root)
    assert (attestations.at(path) is None) == bool(attestations.faults)


def _spoil(made: dict[str, Any], data: st.DataObject) -> None:
    """Puts any JSON in the place of a part."""
    place: Any = made
    while True:
        key = data.draw(st.sampled_from(sorted(place))) if isinstance(place, dict) else 0
        if isinstance(place[key], dict) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just([])
        )
        return
