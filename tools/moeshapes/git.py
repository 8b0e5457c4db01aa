"""Git: the files of branches and other commits, read without checking anything out."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_LOCAL = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE"})
"""Variables that a hook sets for the repository it runs in, which need not be the one that is asked about."""
_COMMIT = re.compile(rb"[0-9a-f]{40,64}")
_READ_ONLY = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


class GitError(Exception):
    """Git cannot answer; the message is one line for whoever asked."""


@dataclass(frozen=True)
class Blob:
    """A file's content in git: its object's name, and its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class Entry:
    """What a commit has that is no folder: a file, a link, or the commit of another repository."""

    path: str
    mode: str
    name: str

    @property
    def is_file(self) -> bool:
        return self.mode.startswith("100")


@dataclass(frozen=True)
class Git:
    """The repository that a directory is in. `prefix` is the directory's path below the repository's top."""

    directory: Path
    prefix: str

    def commit(self, ref: str) -> str:
        """The commit that a ref names. Raises GitError where it names none, or reads as an option."""
        if not ref or ref.startswith("-") or not ref.isprintable() or " " in ref:
            raise GitError(f"{ref!r} is no name of a branch or commit")
        try:
            name = self._bytes("rev-parse", "--quiet", "--verify", "--end-of-options", f"{ref}^{{commit}}").strip()
        except GitError:
            name = b""
        if not _COMMIT.fullmatch(name):
            raise GitError(f"{self.directory} has no branch or commit {ref!r}")
        return name.decode()

    def merge_base(self, one: str, other: str) -> str | None:
        """The commit that two commits grew from, None where they have none in common.

        Raises GitError in a shallow clone that lacks it: what one side changed would seem to be added by the other.
        """
        found = _run(self.directory, ("merge-base", one, other)).stdout.decode().strip()
        if not found and self._bytes("rev-parse", "--is-shallow-repository").strip() == b"true":
            raise GitError(f"the shallow clone lacks what {one[:9]} and {other[:9]} grew from: `git fetch --unshallow`")
        return found or None

    def files(self, commit: str, paths: Iterable[str]) -> Mapping[str, Blob]:
        """The files at or below some paths of the directory, by their paths below the directory.

        Raises GitError where git does not have one.
        """
        tops = [f"{self.prefix}{path}" for path in paths]
        listing = self._bytes("ls-tree", "-r", "-l", "-z", "--full-tree", commit, "--", *tops)
        files = {}
        for entry in filter(None, listing.decode("utf-8", "surrogateescape").split("\0")):
            described, _, path = entry.partition("\t")
            _, kind, name, size = described.split()
            if kind == "blob" and not size.isdecimal():
                raise GitError(f"git does not have the object {name}")
            if kind == "blob":
                files[path.removeprefix(self.prefix)] = Blob(name, int(size))
        return files

    def nearest(self, commit: str, path: str) -> Entry | None:
        """What stands at a path, or in the place of a folder above it: a link there leads elsewhere."""
        parts = f"{self.prefix}{path}".split("/")
        ways = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        listing = self._bytes("ls-tree", "-z", "--full-tree", commit, "--", *ways).decode("utf-8", "surrogateescape")
        for entry in filter(None, listing.split("\0")):
            described, _, at = entry.partition("\t")
            mode, kind, name = described.split()
            if kind != "tree":
                return Entry(at, mode, name)
        return None

    @cached_property
    def whole(self) -> Git:
        """The same repository at its top."""
        top = self._bytes("rev-parse", "--show-toplevel").decode("utf-8", "surrogateescape")
        return Git(Path(top.removesuffix("\n")), "")

    def changed(self, commit: str, paths: Iterable[str]) -> frozenset[str]:
        """The files at or below some paths of the directory that the working tree has otherwise than a commit.

        Added, removed and untracked ones too, ignored or not. Nothing of the repository's configuration is run.
        """
        diff = ("diff", "--name-only", "--relative", "--no-renames", "--no-ext-diff", "--no-textconv", "-z", commit)
        listings = (self._bytes(*command, "--", *paths) for command in (diff, ("ls-files", "--others", "-z")))
        names = (name for listing in listings for name in listing.split(b"\0") if name)
        return frozenset(name.decode("utf-8", "surrogateescape") for name in names)

    def contents(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of blobs by their objects' names. Raises GitError where git does not have one."""
        wanted = list(dict.fromkeys(names))
        answer = self._bytes("cat-file", "--batch", given="".join(f"{name}\n" for name in wanted).encode())
        contents, at = {}, 0
        for name in wanted:
            start = answer.index(b"\n", at) + 1
            described = answer[at:start].split()
            if described[1:2] != [b"blob"]:
                raise GitError(f"git does not have the object {name}")
            at = start + int(described[2]) + 1
            contents[name] = answer[start : at - 1]
        return contents

    def _bytes(self, *arguments: str, given: bytes = b"") -> bytes:
        done = _run(self.directory, arguments, given)
        if done.returncode:
            raise GitError(_first_line(done.stderr) or f"git {arguments[0]} failed with status {done.returncode}")
        return done.stdout


def open_git(directory: Path) -> Git:
    """The repository that a directory is in. Raises GitError where there is none, or no git."""
    done = _run(directory, ("rev-parse", "--show-prefix"))
    if done.returncode:
        raise GitError(f"{directory}: {_first_line(done.stderr)}")
    return Git(directory, done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n"))


def _run(directory: Path, arguments: Sequence[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in _LOCAL} | _READ_ONLY
    command = ["git", "-C", str(directory), "-c", "core.fsmonitor=false", *arguments]
    try:
        return subprocess.run(command, input=given, capture_output=True, check=False, env=environment)
    except FileNotFoundError as error:
        raise GitError("git was not found") from error


def _first_line(text: bytes) -> str:
    lines = text.decode("utf-8", "backslashreplace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else ""
