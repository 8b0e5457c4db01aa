"""Signatures of records, made and checked by `ssh-keygen -Y`: no keys are handled here."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from moeshapes.files import write_atomically
from moeshapes.findings import printable
from moeshapes.record import MAX_BYTES, SIGNATURE, read_content

NAMESPACE = "moeshapes"
"""What a signature must be for: one of a commit or a mail with the same key is none of a record."""
MAX_SIGNATURE_BYTES = 64 << 10
_SIGN_WITHIN_S = 120.0
"""A passphrase is typed, or a security key touched."""
_CHECK_WITHIN_S = 20.0
_BY_WHOM = ("-s", "signature", "-f", "allowed_signers")
"""The files that a signature is checked with, in a folder of their own."""


class SignatureError(Exception):
    """There is no signature, or it is not good; the message is one line."""


def sign(content: bytes, key: Path) -> bytes:
    """A signature by a private key, or by the public key of one that an agent holds. Raises SignatureError."""
    done = _ssh_keygen(["sign", "-f", str(key), "-n", NAMESPACE], content, _SIGN_WITHIN_S)
    if done.returncode:
        raise SignatureError(f"cannot sign with {key}: {_said(done)}")
    return done.stdout


def sign_record(path: Path, key: Path) -> Path:
    """Writes a record's signature beside it and returns its path. Raises SignatureError, RecordError and OSError."""
    signature = path.with_name(path.name + SIGNATURE)
    write_atomically(signature, sign(read_content(path, MAX_BYTES), key))
    return signature


def signer_of(content: bytes, signature: bytes, allowed: bytes) -> str:
    """Who of the allowed signers (the content of a file as ssh-keygen's manual describes it) signed.

    Raises SignatureError where none of them did.
    """
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "signature").write_bytes(signature)
        (folder / "allowed_signers").write_bytes(allowed)
        principals = _principals(folder)
        answers = [
            _ssh_keygen(["verify", *_BY_WHOM, "-n", NAMESPACE, "-I", name], content, _CHECK_WITHIN_S, folder)
            for name in principals
        ]
    good = [name for name, answer in zip(principals, answers, strict=True) if not answer.returncode]
    if not good:
        raise SignatureError(f"not a good signature of this content: {_said(answers[0])}")
    return good[0]


def _principals(folder: Path) -> list[str]:
    """The names that the allowed signers give to the key that signed, whatever it signed."""
    done = _ssh_keygen(["find-principals", *_BY_WHOM], b"", _CHECK_WITHIN_S, folder)
    names = [name for line in done.stdout.decode(errors="replace").splitlines() for name in line.split(",") if name]
    if done.returncode or not names:
        raise SignatureError(f"not by an allowed signer: {_said(done)}")
    return names


def _ssh_keygen(
    arguments: Sequence[str], given: bytes, within_s: float, folder: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = ["ssh-keygen", "-Y", *arguments]
    try:
        return subprocess.run(command, input=given, capture_output=True, check=False, timeout=within_s, cwd=folder)
    except FileNotFoundError as error:
        raise SignatureError(
            "ssh-keygen was not found: install OpenSSH 8.2 or newer, or do without signatures"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SignatureError(f"ssh-keygen did not answer within {within_s:g} s") from error


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    """What ssh-keygen complains of, in one line."""
    lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
    return printable(lines[0]) if lines else f"ssh-keygen ended with status {done.returncode}"
