from __future__ import annotations

import os
from pathlib import Path

import pytest

from moeshapes.files import write_atomically, write_together


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


def test_files_change_together_or_not_at_all(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"old")
    second.mkdir()
    with pytest.raises(IsADirectoryError, match=r"b'$"):
        write_together({first: b"new", second: b"new"})
    assert first.read_bytes() == b"old"
    assert sorted(tmp_path.iterdir()) == [first, second]
    second.rmdir()
    write_together({first: b"new", second: b"new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"new", "b": b"new"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_of_the_file_that_was_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_full_disk(path: Path, mode: str) -> object:
        return open("/dev/full", mode.replace("x", "w"))

    monkeypatch.setattr(Path, "open", on_a_full_disk)
    with pytest.raises(OSError, match=r"No space left on device: .*a\.csv'$"):
        write_atomically(tmp_path / "a.csv", b"new")
    assert list(tmp_path.iterdir()) == []
