"""Which allowed signers count: the base's, never what the change put in their place, by whatever way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from branches import git
from moeshapes.gate.base import Base
from moeshapes.gate.signers import MAX_BYTES, allowed_signers
from pull_requests import Origin, PullRequest, commit, make_origin
from small_repository import SHAPE, tuned_line, write_small_repository
from table_text import write

GOOD, EVIL = b"good ssh-ed25519 AAAA\n", b"evil ssh-ed25519 AAAA\n"
NAME = "keys/allowed_signers"


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    write(tmp_path / "evil", EVIL)
    return make_origin(tmp_path, tuned_line(8))


@pytest.fixture
def merged(origin: Origin) -> Origin:
    """The origin with signers."""
    write(origin.root / NAME, GOOD)
    commit(origin.root)
    return origin


def answer(root: Path, file: Path, base: str = "origin/main") -> tuple[bytes, list[str]]:
    content, findings = allowed_signers(file, root, Base(root, base))
    return content, [f"{finding.rule.id} {finding.place}" for finding in findings]


def link(path: Path, to: Path | str) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)


def a_file(change: PullRequest) -> None:
    change.file(NAME, EVIL.decode())


def a_link_out(change: PullRequest) -> None:
    link(change.root / NAME, change.root.parent / "evil")


def a_link_to_what_git_ignores(change: PullRequest) -> None:
    change.file(".gitignore", "build\n").file("build/evil", EVIL.decode())
    link(change.root / NAME, "../build/evil")


def a_link_to_another_file(change: PullRequest) -> None:
    change.file("evil", EVIL.decode())
    link(change.root / NAME, "../evil")


def a_folder_that_is_a_link(change: PullRequest) -> None:
    (change.root / NAME).unlink(missing_ok=True)
    write(change.root.parent / "elsewhere" / "allowed_signers", EVIL)
    if (change.root / NAME).parent.exists():
        (change.root / NAME).parent.rmdir()
    (change.root / NAME).parent.symlink_to(change.root.parent / "elsewhere")


PLANTED = (a_file, a_link_out, a_link_to_what_git_ignores, a_link_to_another_file, a_folder_that_is_a_link)


@pytest.mark.parametrize("plant", PLANTED)
def test_what_a_change_brings_allows_nobody(origin: Origin, plant: Callable[[PullRequest], None]) -> None:
    change = origin.clone()
    plant(change)
    commit(change.root)
    assert answer(change.root, change.root / NAME) == (b"", [f"MOE516 {NAME}"])


@pytest.mark.parametrize("plant", PLANTED)
def test_what_a_change_puts_in_the_bases_place_does_not_count(
    merged: Origin, plant: Callable[[PullRequest], None]
) -> None:
    change = merged.clone()
    plant(change)
    commit(change.root)
    assert answer(change.root, change.root / NAME) == (GOOD, [])


def test_a_file_that_the_change_only_names(origin: Origin) -> None:
    """It was merged for another purpose."""
    write(origin.root / "example", EVIL)
    commit(origin.root)
    change = origin.clone()
    link(change.root / NAME, "../example")
    commit(change.root)
    assert answer(change.root, change.root / NAME) == (b"", [f"MOE516 {NAME}"])


def test_a_change_that_takes_the_file_out_of_git(merged: Origin) -> None:
    change = merged.clone()
    git(change.root, "rm", "--quiet", "--cached", NAME)
    change.file(".gitignore", "keys\n").file(NAME, EVIL.decode())
    commit(change.root)
    assert answer(change.root, change.root / NAME) == (GOOD, [])


def test_signers_above_shapes_that_are_a_folder_of_the_repository(tmp_path: Path) -> None:
    root = write_small_repository(tmp_path / "whole" / "shapes-of-ours", tuned_line(8))
    git(root.parent, "init", "--quiet")
    commit(root.parent)
    git(root.parent, "checkout", "--quiet", "-b", "pr")
    signers = write(root.parent / "allowed_signers", EVIL)
    commit(root.parent)
    assert answer(root, signers, "main") == (b"", [f"MOE516 {signers}"])
    git(root.parent, "checkout", "--quiet", "main")
    write(signers, GOOD)
    commit(root.parent)
    git(root.parent, "checkout", "--quiet", "-b", "later")
    write(signers, EVIL)
    assert answer(root, signers, "main") == (GOOD, [])


def test_a_path_that_leads_into_the_repository_from_outside(merged: Origin, tmp_path: Path) -> None:
    change = merged.clone()
    a_link_out(change)
    commit(change.root)
    link(tmp_path / "way", change.root)
    link(tmp_path / "signers", f"way/{NAME}")
    assert answer(change.root, tmp_path / "way" / NAME) == (GOOD, [])
    assert answer(change.root, tmp_path / "signers") == (GOOD, [])


def test_a_link_that_the_base_has(origin: Origin) -> None:
    write(origin.root / "of-old", GOOD)
    link(origin.root / NAME, "../of-old")
    commit(origin.root)
    change = origin.clone().file("of-old", EVIL.decode())
    commit(change.root)
    assert answer(change.root, change.root / NAME) == (GOOD, [])


def test_a_file_that_no_commit_has_is_taken_as_it_is(origin: Origin, tmp_path: Path) -> None:
    change = origin.clone().file("shapes/tiny/tp2.yaml", f"# a comment\n{SHAPE}")
    commit(change.root)
    write(tmp_path / "signers", GOOD)
    link(tmp_path / "link", "signers")
    for file in (tmp_path / "signers", tmp_path / "link", write(change.root / "not-committed", GOOD)):
        assert answer(change.root, file) == (GOOD, [])


def test_more_signers_than_can_be_read_are_none(origin: Origin) -> None:
    write(origin.root / NAME, b"#" * (MAX_BYTES + 1))
    commit(origin.root)
    change = origin.clone()
    assert answer(change.root, change.root / NAME) == (b"", [f"MOE516 {NAME}"])


def test_no_file_is_an_error_of_whoever_asks(origin: Origin, tmp_path: Path) -> None:
    change = origin.clone()
    link(tmp_path / "loop", "loop")
    for file in (tmp_path / "absent", tmp_path / "loop", change.root / "shapes", change.root):
        with pytest.raises(OSError, match=r"No such file|Too many|Is a directory"):
            answer(change.root, file)
