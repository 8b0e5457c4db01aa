"""Lines of a table that are no rows: unreadable text, blank lines, what git and diff leave behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moeshapes.findings import Finding, Place
from moeshapes.rule import Rule, Severity

MAX_CELL = 4096
MAX_LINE = 1 << 20
"""Bytes: as many of the longest cells as a table may have columns."""
_UNREADABLE = "AITER reads the file with pandas, which stops here or reads something else than was meant."

TOO_LARGE = Rule(
    "MOE102",
    "too-large",
    Severity.ERROR,
    what="A table, a line or a cell is far larger than any real one.",
    why="It is no tuning table, and reading it would exhaust memory.",
    fix="Check which file this is.",
)
CRLF = Rule(
    "MOE104",
    "crlf",
    Severity.ERROR,
    what="Lines end in CR LF.",
    why="Every such line differs from AITER's, and merges conflict.",
    fix="Save with LF line ends.",
)
CONFLICT_MARKER = Rule(
    "MOE113",
    "conflict-marker",
    Severity.ERROR,
    what="A merge conflict was committed.",
    why=_UNREADABLE,
    fix="Resolve the conflict.",
)
DIFF_SIGN = Rule(
    "MOE114",
    "diff-sign",
    Severity.ERROR,
    what="A line was pasted from a diff.",
    why=_UNREADABLE,
    fix="Remove the sign, or the line.",
)
BLANK_LINE = Rule(
    "MOE115",
    "blank-line",
    Severity.WARNING,
    what="A line is blank.",
    why="pandas skips it; line counts and diffs do not.",
    fix="Remove the line.",
)
REPEATED_HEADER = Rule(
    "MOE116",
    "repeated-header",
    Severity.ERROR,
    what="The header stands again among the rows.",
    why="Two files were concatenated; the line makes every column text.",
    fix="Remove the line.",
)
BAD_TEXT = Rule(
    "MOE117",
    "bad-text",
    Severity.ERROR,
    what="A line holds bytes that are not printable UTF-8 text, or quotes.",
    why="AITER's tables need neither, and tools disagree about how to read them.",
    fix="Remove the characters.",
)


def text_fault(raw: bytes, place: Place) -> Finding | None:
    """What makes a line unreadable as text: its size, its bytes, quotes."""
    content = raw.rstrip(b"\r\n")
    if len(content) > MAX_LINE:
        return Finding(TOO_LARGE, place, f"the line has more than {MAX_LINE >> 20} MiB")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        at = Place(place.file, place.line, error.start + 1)
        return Finding(BAD_TEXT, at, f"byte 0x{content[error.start]:02x} is not UTF-8")
    if not text.isprintable():
        column = next(i for i, character in enumerate(text, 1) if not character.isprintable())
        at = Place(place.file, place.line, column)
        return Finding(BAD_TEXT, at, f"character U+{ord(text[column - 1]):04X} is not printable")
    if '"' in text:
        at = Place(place.file, place.line, text.index('"') + 1)
        return Finding(BAD_TEXT, at, "a quote: no cell of AITER's tables needs one")
    if len(text) > MAX_CELL and any(len(cell) > MAX_CELL for cell in text.split(",")):
        return Finding(TOO_LARGE, place, f"a cell has more than {MAX_CELL} characters")
    return None


def foreign_line(raw: bytes, header: Sequence[str], place: Place) -> Finding | None:
    """Why a readable line is no row: blank, a marker of git or diff, the header again."""
    text = raw.rstrip(b"\r\n").decode()
    if not text.strip():
        return Finding(BLANK_LINE, place, "the line is blank")
    if text.startswith(("<<<<<<<", "=======", ">>>>>>>", "|||||||")):
        return Finding(CONFLICT_MARKER, place, f"merge conflict marker `{text[:7]}`")
    if text.startswith(("+", "-", "@@ ", "diff --git ")):
        return Finding(DIFF_SIGN, place, f"the line begins with `{text[:1]}` as in a diff")
    if header and tuple(text.split(",")) == tuple(header):
        return Finding(REPEATED_HEADER, place, "the header again")
    return None


def line_end_faults(raws: Sequence[bytes], name: str) -> Iterator[Finding]:
    """One finding at the first line that ends in CR LF, however many do."""
    numbers = [number for number, raw in enumerate(raws, 1) if raw.endswith(b"\r\n")]
    if numbers:
        yield Finding(CRLF, Place(name, numbers[0]), f"{len(numbers)} of {len(raws)} lines end in CR LF")
