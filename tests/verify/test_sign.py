"""`verify --sign` as it is run: a signature beside each attested record as it is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keys_of_ssh import make_signer, needs_ssh_keygen
from moeshapes.record import RECORDS
from moeshapes.signature import signer_of
from moeshapes.use import Use
from moeshapes.verify.plan import Subject
from moeshapes.verify.run import Verified
from process import run_moeshapes
from small_repository import tuned_row, write_small_repository
from table_text import write

pytestmark = needs_ssh_keygen


def test_verify_signs_each_record_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signer = make_signer(tmp_path / "keys", "runner@example.invalid")
    root = write_small_repository(tmp_path / "repository")
    attested = root / RECORDS / "a_tuned_fmoe" / "a.json"

    def run(
        planned: object, store: object, pool: object, fresh: bool, done: Callable[[Verified], None], committed: object
    ) -> list[Verified]:
        subject = Subject(tuned_row().key, Use("tiny/tp2", "target", "a4w4", "silu"), tuned_row())
        done(Verified(subject, "proven", {}, saved=write(attested, b"{}")))
        return []

    monkeypatch.setattr("moeshapes.commands.verify.run", run)
    done = run_moeshapes("verify", "--sign", str(signer.key), cwd=root)
    assert "proven: 256/256/8/2" in done.stderr
    assert signer_of(b"{}", attested.with_name("a.json.sig").read_bytes(), signer.allowed.encode()) == signer.name
