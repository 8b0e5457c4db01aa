"""`verify --sign`, in its own process's place: which of a run's records get a signature."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from keys_of_ssh import make_signer, needs_ssh_keygen
from moeshapes.commands.sign import sign_attested, sign_option
from moeshapes.record import RECORDS
from moeshapes.signature import signer_of
from table_text import write

pytestmark = needs_ssh_keygen


def test_attested_records_are_signed_and_others_are_not(tmp_path: Path) -> None:
    signer = make_signer(tmp_path / "keys", "runner@example.invalid")
    attested = write(tmp_path / RECORDS / "a_tuned_fmoe" / "a.json", b"{}")
    emulated = write(tmp_path / "build" / "records" / "b.json", b"{}")
    for record in (attested, emulated, None):
        sign_attested(record, tmp_path, signer.key)
    sign_attested(write(tmp_path / RECORDS / "c.json", b"{}"), tmp_path, None)
    (signature,) = tmp_path.rglob("*.sig")
    assert signature == attested.with_name("a.json.sig")
    assert signer_of(b"{}", signature.read_bytes(), signer.allowed.encode()) == signer.name


def test_a_key_that_cannot_sign_is_refused_before_anything_runs(tmp_path: Path) -> None:
    ran = []

    @click.command()
    @sign_option
    def command(key: Path | None) -> None:
        ran.append(key)

    no_key = write(tmp_path / "key", b"no key")
    with pytest.raises(click.ClickException, match="cannot sign with"):
        command.main(["--sign", str(no_key)], standalone_mode=False)
    assert ran == []
    command.main([], standalone_mode=False)
    assert ran == [None]


def test_a_record_that_cannot_be_signed_stops_the_run(tmp_path: Path) -> None:
    record = write(tmp_path / RECORDS / "a.json", b"{}")
    with pytest.raises(click.ClickException, match="cannot sign with"):
        sign_attested(record, tmp_path, tmp_path / "absent")
