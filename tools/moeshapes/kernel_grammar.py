"""Templates of kernel names: one line of text from which a parser and its exact inverse both follow.

A template is literal text with fields and optional parts:

    {tile_m:#}        a decimal number without leading zeros
    {a:fp8|fp4}       one of the words
    {op:@}            letters and digits
    {before:*vs_|ps_} any number of the words, in any order; `#` in a word stands for a number
    [_w{waves:#}]     present or absent as a whole
    [_persist]        a flag, named by its letters and digits
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

Value = int | str | bool

_PART = re.compile(
    r"\[(?P<before>[^\]{]*)(?:\{(?P<inner>\w+):(?P<inner_kind>[^}]+)\})?(?P<after>[^\]]*)\]"
    r"|\{(?P<name>\w+):(?P<kind>[^}]+)\}"
    r"|(?P<literal>[^\[{]+)"
)
_NUMBER = "(?:0|[1-9][0-9]{0,8})"
_WORD = "[A-Za-z0-9]{1,64}"


@dataclass(frozen=True)
class Part:
    """A piece of a template. Without a `kind` it is literal text, or a flag where it is optional."""

    prefix: str
    name: str = ""
    kind: str = ""
    suffix: str = ""
    optional: bool = False

    def regex(self) -> str:
        field = f"(?P<{self.name}>{_regex_of(self.kind)})" if self.kind else ""
        text = re.escape(self.prefix) + field + re.escape(self.suffix)
        if not self.optional:
            return text
        return f"(?:{text})?" if self.kind else f"(?P<{self.name}>{text})?"

    def value(self, text: str) -> Value:
        if not self.kind:
            return True
        return int(text) if self.kind == "#" else text

    def render(self, value: Value | None) -> str:
        if value is None:
            return "" if self.name else self.prefix
        return self.prefix + (str(value) if self.kind else "") + self.suffix


@dataclass(frozen=True)
class Template:
    """A family of kernel names and the stage they serve: 1, 2, 0 for both, None where it does not tell."""

    family: str
    stage: int | None
    text: str

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return tuple(_part_of(match) for match in _PART.finditer(self.text))

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(part.name for part in self.parts if part.name)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile("".join(part.regex() for part in self.parts), re.ASCII)

    def read(self, text: str) -> dict[str, Value] | None:
        """The fields that are present, None where the text is no name of this family."""
        first = self.parts[0]
        if not first.name and not text.startswith(first.prefix):
            return None
        match = self._regex.fullmatch(text)
        if match is None:
            return None
        found = match.groupdict()
        return {p.name: p.value(found[p.name]) for p in self.parts if p.name and found[p.name] is not None}

    def write(self, values: dict[str, Value]) -> str:
        return "".join(part.render(values.get(part.name)) for part in self.parts)


def _part_of(match: re.Match[str]) -> Part:
    found = match.groupdict()
    if found["literal"] is not None:
        return Part(found["literal"])
    if found["name"] is not None:
        return Part("", found["name"], found["kind"])
    flag = found["before"].strip("_")
    return Part(found["before"], found["inner"] or flag, found["inner_kind"] or "", found["after"], optional=True)


def _regex_of(kind: str) -> str:
    if kind == "#":
        return _NUMBER
    if kind == "@":
        return _WORD
    if kind.startswith("*"):
        words = kind[1:].replace("#", "[0-9]{1,3}")
        return f"(?:{words}){{0,16}}"
    return f"(?:{kind})"
