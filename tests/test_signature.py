from __future__ import annotations

import stat
from pathlib import Path

import pytest

from keys_of_ssh import Signer, make_signer, needs_ssh_keygen
from moeshapes import signature
from moeshapes.signature import SignatureError, sign, sign_record, signer_of

pytestmark = needs_ssh_keygen
CONTENT = b'{"status": "proven"}\n'


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return make_signer(tmp_path, "gpu-runner@example.invalid")


def allowed(*lines: str) -> bytes:
    return "".join(lines).encode()


def test_a_signature_tells_who_signed(signer: Signer) -> None:
    assert signer_of(CONTENT, sign(CONTENT, signer.key), allowed(signer.allowed)) == signer.name


def test_one_key_may_have_several_names(signer: Signer) -> None:
    line = allowed("# a comment\n", signer.allowed.replace(signer.name, f"a@example.invalid,{signer.name}"))
    assert signer_of(CONTENT, sign(CONTENT, signer.key), line) == "a@example.invalid"


def test_a_signature_of_anything_else_is_none(signer: Signer) -> None:
    made = sign(CONTENT, signer.key)
    with pytest.raises(SignatureError, match="not a good signature of this content"):
        signer_of(CONTENT.replace(b"proven", b"failed"), made, allowed(signer.allowed))


def test_others_may_not_sign(signer: Signer, tmp_path: Path) -> None:
    stranger = make_signer(tmp_path / "elsewhere", "stranger@example.invalid")
    for lines in ("", "nonsense\n", signer.allowed):
        with pytest.raises(SignatureError, match="not by an allowed signer"):
            signer_of(CONTENT, sign(CONTENT, stranger.key), allowed(lines))


@pytest.mark.parametrize("bad", [b"", b"no signature", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n", b"\xff" * 1000])
def test_what_is_no_signature(signer: Signer, bad: bytes) -> None:
    with pytest.raises(SignatureError, match="not by an allowed signer"):
        signer_of(CONTENT, bad, allowed(signer.allowed))


def test_a_signature_for_another_purpose_is_none(signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature, "NAMESPACE", "git")
    made = sign(CONTENT, signer.key)
    monkeypatch.undo()
    with pytest.raises(SignatureError, match="not a good signature"):
        signer_of(CONTENT, made, allowed(signer.allowed))


def test_a_key_that_is_allowed_something_else_alone(signer: Signer) -> None:
    line = allowed(signer.allowed.replace(" ssh-ed25519", ' namespaces="git" ssh-ed25519'))
    with pytest.raises(SignatureError, match="not permitted") as refused:
        signer_of(CONTENT, sign(CONTENT, signer.key), line)
    assert "/" not in str(refused.value)


def test_a_signature_stands_beside_its_record(signer: Signer, tmp_path: Path) -> None:
    record = tmp_path / "a.json"
    record.write_bytes(CONTENT)
    for _ in range(2):
        assert sign_record(record, signer.key) == tmp_path / "a.json.sig"
    assert signer_of(CONTENT, (tmp_path / "a.json.sig").read_bytes(), allowed(signer.allowed)) == signer.name


def test_a_key_that_is_none(tmp_path: Path) -> None:
    for name in ("absent", "."):
        with pytest.raises(SignatureError, match="cannot sign with"):
            sign(CONTENT, tmp_path / name)


def test_without_ssh_keygen(signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sign(CONTENT, signer.key)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SignatureError, match="install OpenSSH"):
        sign(CONTENT, signer.key)
    with pytest.raises(SignatureError, match="install OpenSSH"):
        signer_of(CONTENT, made, allowed(signer.allowed))


def test_a_signing_that_does_not_end(signer: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = tmp_path / "ssh-keygen"
    sleeper.write_text("#!/bin/sh\nexec sleep 60\n")
    sleeper.chmod(sleeper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(signature, "_SIGN_WITHIN_S", 0.2)
    with pytest.raises(SignatureError, match=r"did not answer within 0\.2 s"):
        sign(CONTENT, signer.key)
