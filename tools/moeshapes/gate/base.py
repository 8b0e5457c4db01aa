"""The base: the commit that a change grew from, and what stood there, read through git and never checked out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from moeshapes import document
from moeshapes.expand import Declarations
from moeshapes.family import in_tree
from moeshapes.findings import Finding, has_errors
from moeshapes.gate.policy import POLICY, Policy, parse_policy
from moeshapes.git import Blob, open_git
from moeshapes.record import RECORDS
from moeshapes.repository import MODELS, SHAPES, parse_declarations
from moeshapes.rule import Rule, Severity
from moeshapes.tree import Trees

BASE_UNSOUND = Rule(
    "MOE511", "unsound-base", Severity.WARNING,
    what="A YAML file of the base has errors.",
    why="What the base declared cannot be told, so findings may be called new that are old.",
    fix="Correct it on the branch that is merged into; what this change brings is judged all the same.",
)  # fmt: skip


class Base:
    """What the working tree below `root` is compared with. Raises GitError.

    `ref` names a branch or commit that the change is to be merged into; `commit` is where the two parted.
    """

    def __init__(self, root: Path, ref: str) -> None:
        self.ref = ref
        self.trees = Trees(root)
        tree = self.trees.base(ref)
        self.commit, self.families = tree.commit, tree.families
        self._git = open_git(root)
        self.is_tip = self._git.commit(ref) == tree.commit

    @property
    def name(self) -> str:
        """`main (1234abcde)`."""
        return f"{self.ref} ({self.commit[:9]})"

    @cached_property
    def changed(self) -> frozenset[str]:
        """The files of declarations, records and policy that are not as they were, by their paths."""
        return self._git.changed(self.commit, (MODELS, SHAPES, RECORDS, POLICY))

    @property
    def declares_the_same(self) -> bool:
        return not any(path.startswith((f"{MODELS}/", f"{SHAPES}/")) for path in self.changed)

    @cached_property
    def records(self) -> Mapping[str, Blob]:
        """The files among the records, by their paths."""
        return self._git.files(self.commit, (RECORDS,))

    def contents(self, paths: Iterable[str], files: Mapping[str, Blob], limit: int) -> dict[str, bytes]:
        """The contents of those of `files` that are no larger than `limit` bytes."""
        blobs = {path: files[path] for path in paths if path in files and files[path].size <= limit}
        contents = self._git.contents(blob.name for blob in blobs.values())
        return {path: contents[blob.name] for path, blob in blobs.items()}

    def content(self, path: str, limit: int) -> bytes | None:
        """The content of one file, None where there is none, or a larger one."""
        return self.contents([path], self._git.files(self.commit, (path,)), limit).get(path)

    def content_at(self, path: Path, limit: int) -> bytes | None:
        """As `content`, of a file by its absolute path, which may be above `root`. A link's is none."""
        name = self._name(path)
        entry = self._git.whole.nearest(self.commit, name) if name else None
        if entry is None or not entry.is_file or entry.path != name:
            return None
        return self.contents([name], self._git.whole.files(self.commit, (name,)), limit).get(name)

    def leaves_open(self, path: Path) -> bool:
        """Whether the change does not say what is at an absolute path: not even by a link in a folder's place."""
        name = self._name(path)
        now = self._git.whole.nearest(self._git.commit("HEAD"), name) if name else None
        return now is None or (not now.is_file and now == self._git.whole.nearest(self.commit, name))

    def _name(self, path: Path) -> str:
        """What git calls the file; empty where it is outside of the repository."""
        top = self._git.whole.directory
        return path.relative_to(top).as_posix() if top in path.parents else ""

    @cached_property
    def declarations(self) -> tuple[Declarations, list[Finding]]:
        """What it declared, and a finding a file that has errors."""
        files = self._git.files(self.commit, (MODELS, SHAPES))
        declarations, findings = parse_declarations(self.contents(files, files, document.MAX_BYTES))
        return declarations, self._unsound(findings)

    def policy(self) -> tuple[Policy, list[Finding]]:
        """The policy that it had, or the defaults."""
        content = self.content(POLICY, document.MAX_BYTES)
        if content is None:
            return Policy(), []
        policy, findings = parse_policy(content, POLICY)
        return policy, self._unsound(findings)

    def _unsound(self, findings: Iterable[Finding]) -> list[Finding]:
        """The first error of each file, as a warning of this one."""
        first = {finding.place.file: finding for finding in reversed(list(findings)) if has_errors([finding])}
        return [
            Finding(BASE_UNSOUND, in_tree(self.ref, finding.place), f"{finding.rule.id} {finding.message}")
            for finding in first.values()
        ]
