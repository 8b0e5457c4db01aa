"""Markdown that GitHub renders: cells in which nothing is markup, tables, and fitting into a limit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from moeshapes.findings import printable

LONGEST_CELL = 300
"""Characters of a cell's text. Reasons are free text; a kernel's name has 256 at most."""
_SPECIAL = re.compile(
    r"[^A-Za-z0-9 (),:;/=%+?µ×→±−–…._-]"
    r"|(?<![A-Za-z0-9_])_|_(?![A-Za-z0-9_])"  # within a word it is no markup
    r"|:(?=/)|(?i:(?<=www)\.)"  # GitHub links what looks like an address
)


def cell(text: str) -> Markup:
    """Text as it stands. Every character that may be markup is written as its number, which is never taken for any."""
    shown = printable(text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…")
    return Markup(_SPECIAL.sub(lambda match: f"&#{ord(match[0])};", shown))


def code(text: str) -> Markup:
    """Text from outside. In a `code` element GitHub looks for no users, issues or commits to link and to notify."""
    return Markup(f"<code>{cell(text)}</code>") if text else Markup("")


def link(text: Markup, url: str) -> Markup:
    """The text, linked where there is a URL. The URL is one of `Links`: its own characters are harmless."""
    return Markup(f'<a href="{url}">{text}</a>') if url else text


@dataclass(frozen=True)
class Section:
    """A table under a title. `importance` says what is cut last; `left_out` counts rows that were cut.

    `open` rows stand in the open, the rest folded away; with 0 all of it is folded, the title being what opens it.
    """

    title: str
    intro: str
    header: tuple[str, ...]
    importance: int
    open: int = 0
    rows: tuple[tuple[Markup, ...], ...] = ()
    left_out: int = 0

    @property
    def head(self) -> Markup:
        return _line(self.header) + Markup("\n") + _line(["---"] * len(self.header))

    @property
    def shown(self) -> list[Markup]:
        return [_line(row) for row in self.rows[: self.open]]

    @property
    def folded(self) -> list[Markup]:
        return [_line(row) for row in self.rows[self.open :]]


def _line(cells: Iterable[Markup | str]) -> Markup:
    return Markup("| ") + Markup(" | ").join(cells) + Markup(" |")


def fit(sections: Sequence[Section], excess: int) -> list[Section]:
    """The sections with as many rows cut, from the end of the least important ones, as make up for `excess` bytes."""
    kept = {id(section): section for section in sections}
    for section in sorted(sections, key=lambda section: section.importance):
        if excess > 0 and section.rows:
            excess += _SAID_OF_WHAT_IS_CUT
            sizes = [len(_line(row).encode()) + 1 for row in section.rows]
            count = _enough(sizes, excess)
            excess -= sum(sizes[len(sizes) - count :])
            kept[id(section)] = replace(section, rows=section.rows[: len(sizes) - count], left_out=count)
    return [kept[id(section)] for section in sections]


_SAID_OF_WHAT_IS_CUT = 200
"""Bytes, at most, that a section grows by where rows of it are cut."""


def _enough(sizes: Sequence[int], excess: int) -> int:
    """How many sizes from the end make up for the excess; all, where they do not."""
    for count in range(1, len(sizes) + 1):
        excess -= sizes[-count]
        if excess <= 0:
            return count
    return len(sizes)
