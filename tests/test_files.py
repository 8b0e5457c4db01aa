from __future__ import annotations

import os
from pathlib import Path

import pytest

from moeshapes.files import write_atomically


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.csv"
    write_atomically(path, b"one\n")
    write_atomically(path, b"two\n")
    assert path.read_bytes() == b"two\n"
    assert list(path.parent.iterdir()) == [path]


def test_respects_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
