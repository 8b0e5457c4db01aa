from __future__ import annotations

import os
from pathlib import Path

import pytest

from moeshapes.files import write_atomically, write_together, write_where_told


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


def test_a_pipe_is_written_into_where_it_was_named_and_never_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, link):
        write_where_told(path, b"new")
        assert os.read(reader, 10) == b"new"
    os.close(reader)
    with pytest.raises(OSError, match="device stands there"):
        write_atomically(pipe, b"new")
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_a_link_that_was_named_stays_and_its_file_changes(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(file)
    for content in (b"one", b"two"):
        write_where_told(link, content)
        assert (link.is_symlink(), file.read_bytes()) == (True, content)
    write_where_told(tmp_path / "new" / "plain", b"three")
    assert (tmp_path / "new" / "plain").read_bytes() == b"three"
