"""YAML documents as data with places: every value and key knows its line and column.

Documents come from pull requests, so what can surprise a reader or exhaust a machine is refused, not interpreted:
aliases, anchors and tags, duplicate keys, invisible characters, more than one document, and anything large or deep.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from moeshapes.findings import Finding, Place
from moeshapes.rule import Rule, Severity
from moeshapes.scalar import plain_scalar

KeyPath = tuple[str | int, ...]
"""Where a value stands in its document: `("moe", 0, "tokens")`."""

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_FINDINGS = 100
MAX_SCALAR = 4000
"""Characters: no reason or note needs more. Python reads and prints no number beyond 4300 digits."""
MAX_NUMBER = 40

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

UNREADABLE = Rule(
    "MOE001", "unreadable-document", Severity.ERROR,
    what="A YAML file cannot be read: it is too large, not UTF-8, not a plain file, or holds invisible characters.",
    why="What a reviewer sees must be all that the file says, and reading it must not exhaust the machine.",
    fix="Write a plain UTF-8 text file with spaces and ordinary line ends.",
)  # fmt: skip
SYNTAX = Rule(
    "MOE002", "yaml-syntax", Severity.ERROR,
    what="The text is not valid YAML.",
    why="Nothing after the fault can be trusted.",
    fix="Check the indentation, and put text that holds `: ` or ` #`, or starts with a mark such as [ or *, in quotes.",
)  # fmt: skip
DUPLICATE_KEY = Rule(
    "MOE003", "duplicate-key", Severity.ERROR,
    what="A mapping has the same key twice.",
    why="YAML readers silently keep one of the two, and not all the same one.",
    fix="Remove one of them.",
)  # fmt: skip
NOT_ALLOWED = Rule(
    "MOE004", "yaml-feature", Severity.ERROR,
    what="The document uses a part of YAML that this repository does without.",
    why="Aliases, anchors, tags, several documents and keys that are not text hide what a file says from its reviewer.",
    fix="Write the value out where it is used.",
)  # fmt: skip


@dataclass(frozen=True)
class Document:
    """A document's data (mappings, lists and scalars of the YAML 1.2 core schema) and where each part of it stands."""

    name: str
    value: object
    places: Mapping[KeyPath, Place]
    key_places: Mapping[KeyPath, Place]

    def place(self, *path: str | int) -> Place:
        """Where the value at `path` starts; for a path that is not there, where its nearest parent starts."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places.get(path, Place(self.name, 1, 1))

    def key_place(self, *path: str | int) -> Place:
        """Where the key of the value at `path` starts; for an item of a list, the item."""
        return self.key_places.get(path) or self.place(*path)


def load_document(path: Path, name: str) -> tuple[Document | None, list[Finding]]:
    """The document in a file, as `parse_document` gives it. `name` is the path that findings show."""
    data, fault = _read(path)
    if fault:
        return None, [Finding(UNREADABLE, Place(name), fault)]
    return parse_document(data, name)


def parse_document(data: bytes, name: str) -> tuple[Document | None, list[Finding]]:
    """The document in these bytes, None where it cannot be judged further, and what is wrong with them.

    A document with findings lacks what they are about: of a duplicate key it has the first value.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _position(data[: error.start].decode("utf-8"))
        return None, [Finding(UNREADABLE, Place(name, line, column), f"byte 0x{data[error.start]:02x} is not UTF-8")]
    findings = list(_invisible_characters(text, name))
    if findings:
        return None, findings
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            builder.take(event)
            if len(builder.findings) >= MAX_FINDINGS:
                return None, builder.findings
    except yaml.YAMLError as error:
        return None, [*builder.findings, _syntax_finding(error, name, text)]
    if builder.unusable:
        return None, builder.findings
    return Document(name, builder.root, builder.places, builder.key_places), builder.findings


def _read(path: Path) -> tuple[bytes, str]:
    """A plain file's bytes, or why it is not read. A link could lead out of the repository, or to a device."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return b"", "not a plain file: links, folders and devices are not read"
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        return b"", f"cannot be read: {error.strerror}"
    return data, f"larger than {MAX_BYTES // 1024} KiB" if len(data) > MAX_BYTES else ""


def _position(before: str) -> tuple[int, int]:
    """Line and column, from 1, of what follows `before`."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _invisible_characters(text: str, name: str) -> Iterator[Finding]:
    """One finding for each character that an editor does not show as itself: tabs, controls, odd spaces, a BOM."""
    for character in sorted(set(text)):
        if not character.isprintable() and character not in "\n\r":
            line, column = _position(text[: text.index(character)])
            what = {"\t": "a tab", "\ufeff": "a byte order mark"}.get(character, "an invisible character")
            yield Finding(UNREADABLE, Place(name, line, column), f"{what} (U+{ord(character):04X})")


def _syntax_finding(error: yaml.YAMLError, name: str, text: str) -> Finding:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "cannot be parsed"
    # The parser places what is wrong with the end of the text on a line of its own.
    place = Place(name, min(mark.line, text.count("\n")) + 1, mark.column + 1) if mark else Place(name)
    return Finding(SYNTAX, place, f"not valid YAML: {problem}")


class _Builder:
    """Builds a document's data from parser events, with places, and collects what is not allowed on the way.

    Events rather than composed nodes: only they still tell an alias from a copy, and building without recursion makes
    depth a finding.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: object = None
        self.places: dict[KeyPath, Place] = {}
        self.key_places: dict[KeyPath, Place] = {}
        self.findings: list[Finding] = []
        self.unusable = False
        """Whether values are missing that other checks would take for wrong ones."""
        self._open: list[_Container] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents == 2:
                self._refuse(event, "a second document", "Keep one document a file.")
        elif self._documents > 1:
            return
        elif isinstance(event, yaml.AliasEvent):
            self._refuse(event, f"alias `*{event.anchor}`")
            self.unusable = True
            self._add(event, None)
        elif isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            self._take_node(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._open.pop()

    def _take_node(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.anchor:
            self._refuse(event, f"anchor `&{event.anchor}`")
        if event.tag:
            self._refuse(event, f"tag `{event.tag}`", "Leave the tag out; put text in quotes.")
            self.unusable = True
        if isinstance(event, yaml.ScalarEvent):
            self._add(event, self._scalar(event))
            return
        value: list[object] | dict[str, object] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_Container(self._add(event, value), value))
        if len(self._open) == MAX_DEPTH + 1:
            self._refuse(event, f"nesting of more than {MAX_DEPTH} levels", "Flatten it.")
            self.unusable = True

    def _scalar(self, event: yaml.ScalarEvent) -> object:
        if len(event.value) > MAX_SCALAR:
            self._refuse(event, f"a value of more than {MAX_SCALAR} characters", "Shorten it.")
            self.unusable = True
            return ""
        value = plain_scalar(event.value) if event.implicit[0] else event.value
        if isinstance(value, (int, float)) and len(event.value) > MAX_NUMBER:
            self._refuse(event, f"a number of more than {MAX_NUMBER} digits", "Shorten it.")
            self.unusable = True
            return 0
        return value

    def _add(self, event: yaml.Event, value: object) -> KeyPath:
        """Puts a value where the parser stands, as item, key or value; its path."""
        place = self._place(event)
        if not self._open:
            self.root, self.places[()] = value, place
            return ()
        container = self._open[-1]
        if isinstance(container.value, list):
            path = (*container.path, len(container.value))
            container.value.append(value)
        elif container.key is None:
            container.key = self._key(container, event, value)
            return (*container.path, container.key)
        else:
            path = (*container.path, container.key)
            if not container.key_refused:
                container.value[container.key] = value
            container.key = None
        self.places[path] = place
        return path

    def _key(self, container: _Container, event: yaml.Event, value: object) -> str:
        """The key, or where it stands if it is refused: the paths below it must differ from those of the first one."""
        place = self._place(event)
        first = self.key_places.get((*container.path, str(value)))
        container.key_refused = not isinstance(value, str) or first is not None
        if not isinstance(value, str):
            self._refuse(event, "a key that is not text", "Put the key in quotes.")
        elif first:
            self.findings.append(Finding(DUPLICATE_KEY, place, f"key `{value}` is already there at line {first.line}"))
        key = str(place) if container.key_refused else str(value)
        path = (*container.path, key)
        self.key_places[path] = place
        return key

    def _place(self, event: yaml.Event) -> Place:
        mark: Any = event.start_mark
        return Place(self.name, mark.line + 1, mark.column + 1)

    def _refuse(self, event: yaml.Event, what: str, remedy: str = "") -> None:
        self.findings.append(Finding(NOT_ALLOWED, self._place(event), f"{what} is not allowed here", remedy))


@dataclass
class _Container:
    """A list or mapping that is being filled. `key` is the key whose value comes next; a refused one's is left out."""

    path: KeyPath
    value: list[object] | dict[str, object]
    key: str | None = None
    key_refused: bool = False
