"""Links: where a reader of a report finds a row, by a template that the command line gives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from moeshapes.findings import Place

_ALLOWED = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&*+,;=%{}-]+")
_FIELDS = ("{file}", "{line}", "{commit}")


class LinkError(ValueError):
    """Why a template is none, in one line."""


@dataclass(frozen=True)
class Links:
    """Makes URLs of places: `https://github.com/OWNER/NAME/blob/{commit}/{file}#L{line}`. Empty, it makes none."""

    template: str = ""
    commit: str = ""

    def __post_init__(self) -> None:
        if self.template and not _ALLOWED.fullmatch(self.template):
            raise LinkError("a link begins with https:// or http:// and has no quotes, spaces or angle brackets")
        unknown = set(re.findall(r"\{[^}]*\}?", self.template)) - set(_FIELDS)
        if unknown or (self.template and "{file}" not in self.template):
            raise LinkError(f"a link has {{file}} and may have {{line}} and {{commit}}: not {self.template}")

    @property
    def with_commit(self) -> str:
        return self.template.replace("{commit}", quote(self.commit, safe=""))

    def of(self, place: Place) -> str:
        """The URL of a place; empty where there is no template, or the file is outside the repository."""
        if not self.template or place.file.startswith(("/", "..")):
            return ""
        file = quote(place.file, errors="surrogateescape")  # whose name need not be UTF-8
        return self.with_commit.replace("{file}", file).replace("{line}", str(place.line))
