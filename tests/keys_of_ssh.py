"""Keys of OpenSSH for tests: signers that a test makes, and what allows them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not here")


@dataclass(frozen=True)
class Signer:
    """A key pair without a passphrase."""

    name: str
    key: Path

    @property
    def allowed(self) -> str:
        """The line that allows it."""
        return f"{self.name} {self.key.with_suffix('.pub').read_text()}"


def make_signer(folder: Path, name: str) -> Signer:
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / name.partition("@")[0]
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)], check=True)
    return Signer(name, key)
