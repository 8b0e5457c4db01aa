"""What must hold of everything that is printed or written, whatever was read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import PurePosixPath

from moeshapes.findings import Finding, render

_ANNOTATION = re.compile(r"::(?:error|warning|notice) (?:(?:file|line|col|title)=[^:,\r\n]*,?)+::[^\r\n]*")
_TAGS = re.compile(r'</?(?:details|summary|code)>|<a href="https://[^"<>]*">|</a>|<br>')
_FORMULA = re.compile(r"[=+@\t\r]|-(?![0-9.]+(?:[eE][-+]?[0-9]+)?%?$)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TABLE_FOLDERS = ("generated/aiter/configs", "generated/aiter/configs/model_configs", "generated/triton")


def check_findings(findings: Iterable[Finding]) -> None:
    """As text, annotations and JSON: one of each a finding, and nothing in them that a terminal or a runner obeys."""
    found = list(findings)
    assert all(isinstance(finding, Finding) for finding in found)
    number = len(set(found))
    text = render(found, "text")
    check_printed(text)
    assert len(text.splitlines()) == 2 * number
    annotations = render(found, "github").splitlines()
    assert len(annotations) == number
    assert all(_ANNOTATION.fullmatch(line) and line.isprintable() for line in annotations)
    as_json = render(found, "json")
    assert len(json.loads(as_json)) == number
    check_printed(as_json)


def check_printed(text: str) -> None:
    """Printed in a workflow or on a terminal: no control characters, no command of either kind that a runner knows."""
    assert text.replace("\n", "").isprintable(), "a control character is printed raw"
    assert not any(line.lstrip().startswith("::") for line in text.splitlines()), "a line is a workflow command"
    assert "##[" not in text, "a line has a workflow command"
    text.encode()


def check_markdown(text: str) -> None:
    """No markup but that of the templates."""
    check_printed(text)
    rest = _TAGS.sub("", re.sub(r"(?s)```.*?```", "", text))
    assert "<" not in rest, "markup that is no template's"
    assert "](" not in rest, "a link that is no template's"
    assert "@everyone" not in rest, "somebody is mentioned"


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
        self.found[tag] += 1


def tags_of(page: str) -> Counter[str]:
    """How often each element opens in a page."""
    parser = _Tags()
    parser.feed(page)
    return parser.found


def check_page(page: str, tags: Counter[str]) -> None:
    """A page has the elements of its template alone, whatever its data are."""
    page.encode()
    assert tags_of(page) == tags, "an element that is not the template's"
    assert not _CONTROL.search(page), "a control character stands in the page"


def check_table(path: str, content: bytes) -> None:
    """A table that is written: below generated/, and nothing in it that a spreadsheet would run."""
    where = PurePosixPath(path)
    assert str(where.parent) in _TABLE_FOLDERS, f"{path} is outside the folders of tables"
    assert _FILE_NAME.fullmatch(where.name), f"{path} is no plain name"
    for line in content.decode().splitlines():
        for cell in line.split(","):
            assert not _FORMULA.match(cell), f"`{cell}` is a formula"


def check_declaration(path: str, text: str) -> None:
    """A YAML file that is written."""
    where = PurePosixPath(path)
    assert where.parts[0] in ("models", "shapes"), f"{path} is no declaration"
    assert ".." not in where.parts, f"{path} leads elsewhere"
    assert _FILE_NAME.fullmatch(where.name), f"{path} is no plain name"
    assert text.replace("\n", "").isprintable()
    text.encode()
