"""Trees: the tuned tables of branches and other commits, read without checking anything out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moeshapes.family import FOLDERS, HERE, Family, is_member, merge_order
from moeshapes.git import Blob, GitError, open_git
from moeshapes.table import MAX_BYTES, Table, parse_table, unread_table


@dataclass(frozen=True)
class Tree:
    """A tree to merge with others: its name, its commit (the working tree's is HEAD), its families by folder."""

    name: str
    commit: str
    families: Mapping[str, Family]


class Trees:
    """Reads the families of commits of the repository that a directory is in. Raises GitError."""

    def __init__(self, root: Path) -> None:
        self._git = open_git(root)
        self._tables: dict[tuple[str, str], Table] = {}
        self._families: dict[str, Mapping[str, Family]] = {}

    def working(self, families: Mapping[str, Family]) -> Tree:
        """The working tree, whose families were read from disk."""
        return Tree(HERE, self._git.commit("HEAD"), families)

    def named(self, ref: str) -> Tree:
        commit = self._git.commit(ref)
        return Tree(ref, commit, self._of(commit))

    def base(self, ref: str) -> Tree:
        """The tree that the working tree and a ref grew from. Raises GitError where they have none in common."""
        commit = self._git.merge_base(self._git.commit("HEAD"), self._git.commit(ref))
        if commit is None:
            raise GitError(f"{ref} and this tree have no commit in common")
        return Tree(ref, commit, self._of(commit))

    def ancestor(self, one: Tree, other: Tree) -> Mapping[str, Family]:
        """The families of the commit that two trees grew from; none where they have none in common."""
        commit = self._git.merge_base(one.commit, other.commit)
        return self._of(commit) if commit else {}

    def _of(self, commit: str) -> Mapping[str, Family]:
        if commit not in self._families:
            self._families[commit] = self._read(self._git.files(commit, FOLDERS))
        return self._families[commit]

    def _read(self, files: Mapping[str, Blob]) -> Mapping[str, Family]:
        below = [(folder, path.removeprefix(f"{folder}/"), path) for folder in FOLDERS for path in files]
        members = [(folder, file, path) for folder, file, path in below if file != path and is_member(folder, file)]
        members.sort(key=lambda member: merge_order(member[1]))
        self._parse({path: files[path] for _, _, path in members})
        return {
            folder: Family({file: self._tables[path, files[path].name] for of, file, path in members if of == folder})
            for folder in FOLDERS
        }

    def _parse(self, files: Mapping[str, Blob]) -> None:
        """Parses what was not parsed before: most tables are the same in most commits."""
        fresh = {path: blob for path, blob in files.items() if (path, blob.name) not in self._tables}
        contents = self._git.contents(blob.name for blob in fresh.values() if blob.size <= MAX_BYTES)
        for path, blob in fresh.items():
            content = contents.get(blob.name)
            if content is None:
                self._tables[path, blob.name] = unread_table(path, f"the file has more than {MAX_BYTES >> 20} MiB")
            else:
                self._tables[path, blob.name] = parse_table(content, path)
