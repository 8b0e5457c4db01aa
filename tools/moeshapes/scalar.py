"""What a plain YAML scalar means: the YAML 1.2 core schema, and nothing of YAML 1.1.

So `010` is ten, not eight; `yes`, `no`, `on` and `off` are text, not truth values; `1:30` is text, not ninety; and
there are no dates. Source: YAML 1.2.2, section 10.3.2.
"""

from __future__ import annotations

import re

Scalar = str | int | float | bool | None

_FIXED: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_DECIMAL = re.compile(r"[-+]?[0-9]+", re.ASCII)
_OCTAL = re.compile(r"0o[0-7]+", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)


def plain_scalar(text: str) -> Scalar:
    """The value of an unquoted scalar of at most 4000 characters (Python refuses to read longer decimal numbers)."""
    if text in _FIXED:
        return _FIXED[text]
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    return float(text) if _FLOAT.fullmatch(text) else text
