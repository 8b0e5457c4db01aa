"""Documents against the JSON Schemas, with every complaint in the words of who wrote the document."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any

from moeshapes.document import Document, KeyPath
from moeshapes.findings import Finding, Place
from moeshapes.rule import Rule, Severity
from moeshapes.yaml_text import flow

UNKNOWN_KEY = Rule(
    "MOE010", "unknown-key", Severity.ERROR,
    what="A key is not one that this kind of document has.",
    why="A misspelt key would be ignored, and what it says would silently not hold.",
    fix="Correct its spelling, or remove it.",
)  # fmt: skip
MISSING_KEY = Rule(
    "MOE011", "missing-key", Severity.ERROR,
    what="A key that this kind of document needs is not there.",
    why="There is no default that would be right for every model and deployment.",
    fix="Add it.",
)  # fmt: skip
WRONG_TYPE = Rule(
    "MOE012", "wrong-type", Severity.ERROR,
    what="A value is of another kind than its key takes.",
    why="Quoted numbers, fractions where whole numbers are meant and lists where one value is meant are slips.",
    fix="Write a value of the kind that is named.",
)  # fmt: skip
WRONG_VALUE = Rule(
    "MOE013", "wrong-value", Severity.ERROR,
    what="A value is not among those that its key takes.",
    why="It names nothing that AITER or this repository knows, or is out of range.",
    fix="Write a value that the key takes.",
)  # fmt: skip

_Path = tuple[Any, ...]
_Validator = Any
"""jsonschema's Validator and, next, its ValidationError: imported only where they are made."""
_Error = Any
_Complaints = Iterator[tuple[Rule, _Path, str, str]]
"""A rule, where it is broken, the message, and the remedy (empty: the rule's own)."""
_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "a mapping",
    "boolean": "true or false",
    "null": "nothing",
}


def check_schema(document: Document, schema: str) -> tuple[dict[str, Any], list[Finding]]:
    """The sound part of a document, and all that `schema` ("model" or "shape") finds wrong with its structure.

    The sound part is what other checks may go on with, so that one run finds everything: every value in it is as the
    schema says, and every mapping in it but the outermost has all that it must. What is at fault is left out; in a list
    None stands for it, so that the other items keep their numbers.
    """
    validator = strict_validator(schema)
    complaints = [complaint for error in validator.iter_errors(document.value) for complaint in _complaints(error)]
    findings = [
        Finding(rule, _place(document, path, rule), message, remedy) for rule, path, message, remedy in complaints
    ]
    faulty = {path for rule, path, *_ in complaints if rule is not MISSING_KEY}
    sound = _sound(document.value, validator.schema, validator.schema["$defs"], faulty, ())
    return (sound if isinstance(sound, dict) else {}), findings


def _sound(value: object, schema: Mapping[str, Any], defs: Mapping[str, Any], faulty: set[_Path], path: _Path) -> Any:
    """The sound part of a value, None where there is none."""
    if path in faulty:
        return None
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        return [_sound(item, schema.get("items", {}), defs, faulty, (*path, n)) for n, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    known, others = schema.get("properties", {}), schema.get("additionalProperties") or {}
    parts = {key: _sound(item, known.get(key, others), defs, faulty, (*path, key)) for key, item in value.items()}
    kept = {key: part for key, part in parts.items() if part is not None}
    complete = not path or all(key in kept for key in schema.get("required", ()))
    return kept if complete else None


def nearest(word: str, words: Sequence[str]) -> str:
    """`: did you mean `tokens`?` where one of the words is close, else nothing."""
    close = closest(word, words)
    return f": did you mean `{close}`?" if close else ""


def closest(word: str, words: Sequence[str]) -> str | None:
    """The word that this one is most likely meant to be."""
    return next(iter(get_close_matches(word, words, n=1)), None)


@cache
def strict_validator(schema: str) -> _Validator:
    """A validator for whom 4.0 is no integer and infinity no number.

    jsonschema is imported here, since `keys` and others that read no YAML should not pay for it at start.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    checker = Draft202012Validator.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
    text = (resources.files("moeshapes") / "schema" / f"{schema}.schema.json").read_text("utf-8")
    strict: Callable[[object], _Validator] = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator, {"pattern": _check_pattern}, type_checker=checker
    )
    return strict(json.loads(text))


def _check_pattern(validator: _Validator, pattern: str, value: object, _: object) -> Iterator[_Error]:
    """As JSON Schema means it: `$` is the very end, where Python's also stands before a last line break."""
    from jsonschema import ValidationError

    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _is_integer(_: object, value: object) -> bool:
    """Stricter than JSON Schema, for which 4.0 is an integer: it would be spelled `4.0` in a table."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: object, value: object) -> bool:
    """One that can be reckoned with: JSON may write whole numbers that are beyond any float."""
    try:
        return (_is_integer(checker, value) or isinstance(value, float)) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:
        return False


def _complaints(error: _Error) -> _Complaints:
    return _SAY.get(str(error.validator), _say_otherwise)(tuple(error.absolute_path), error)


def _remedy(start: str, key: object, schema: Mapping[str, Any]) -> str:
    """`Add it, for example `tp: 4`.`, after a schema's example; empty where it has none."""
    if "examples" not in schema:
        return ""
    shown = flow(schema["examples"][0])
    return f"{start} `{key}: {shown}`." if isinstance(key, str) else f"{start} `{shown}`."


def _place(document: Document, path: KeyPath, rule: Rule) -> Place:
    return document.key_place(*path) if rule is UNKNOWN_KEY else document.place(*path)


def _say_unknown(path: _Path, error: _Error) -> _Complaints:
    known = sorted(error.schema["properties"])
    for key in error.instance:
        if key not in known:
            hint = nearest(key, known) or f"; there are {_listed(known)}"
            yield UNKNOWN_KEY, (*path, key), f"unknown key `{key}`{_inside(path)}{hint}", ""


def _say_missing(path: _Path, error: _Error) -> _Complaints:
    for key in error.validator_value:
        if key not in error.instance:
            remedy = _remedy("Add it, for example", key, error.schema["properties"][key])
            yield MISSING_KEY, path, f"`{key}` is missing{_inside(path)}", remedy


def _say_type(path: _Path, error: _Error) -> _Complaints:
    wanted = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    kinds = " or ".join(_KINDS[kind] for kind in wanted)
    remedy = _remedy("Write for example", path[-1], error.schema) if path else ""
    yield WRONG_TYPE, path, f"{_subject(path)} must be {kinds}, not {_shown(error.instance)}", remedy


def _say_enum(path: _Path, error: _Error) -> _Complaints:
    values = [value for value in error.validator_value if isinstance(value, str)]
    hint = _enum_hint(error.instance, values, error.schema) if isinstance(error.instance, str) else ""
    message = f"{_subject(path)} is {_shown(error.instance)}, which is none of {_listed(values)}{hint}"
    yield WRONG_VALUE, path, message, ""


def _enum_hint(written: str, values: Sequence[str], schema: Mapping[str, Any]) -> str:
    """The values that `commonNames` take the word for, or that begin with it, with what each means; else the closest.

    A common name that means none of them is of something that is not supported.
    """
    common: Mapping[str, Sequence[str]] = schema.get("commonNames", {})
    word = written.strip().lower()
    meant = common[word] if word in common else [value for value in values if word and value.startswith(f"{word}_")]
    if not meant:
        return ", and it is not supported" if word in common else nearest(written, values)
    meanings = dict(zip(schema["enum"], schema.get("enumDescriptions", ()), strict=False))
    *others, last = [f"`{value}` ({meanings[value]})" if value in meanings else f"`{value}`" for value in meant]
    return f": did you mean {' or '.join(filter(None, (', '.join(others), last)))}?"


def _say_pattern(path: _Path, error: _Error) -> _Complaints:
    rule = error.schema["patternErrorMessage"]
    if "propertyNames" in error.absolute_schema_path:
        yield UNKNOWN_KEY, (*path, error.instance), f"key `{error.instance}`{_inside(path)}: {rule}", ""
    else:
        yield WRONG_VALUE, path, f"{_subject(path)} is {_shown(error.instance)}: it {rule}", ""


_LIMITS = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be above {}",
    "minLength": "must have at least {} character",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} item",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} key",
    "maxProperties": "must have at most {} keys",
    "uniqueItems": "must not have the same item twice",
}


def _say_otherwise(path: _Path, error: _Error) -> _Complaints:
    limit = _LIMITS[str(error.validator)].format(error.validator_value)
    shown = f", not {_shown(error.instance)}" if isinstance(error.instance, (int, float)) else ""
    yield WRONG_VALUE, path, f"{_subject(path)} {limit}{shown}", ""


_SAY: dict[str, Callable[[_Path, _Error], _Complaints]] = {
    "additionalProperties": _say_unknown,
    "required": _say_missing,
    "type": _say_type,
    "enum": _say_enum,
    "pattern": _say_pattern,
}


def _subject(path: _Path) -> str:
    """`tp`, item 2 of `gpus`, or the document."""
    if not path:
        return "the document"
    if isinstance(path[-1], int):
        return f"item {path[-1] + 1} of `{path[-2]}`"
    return f"`{path[-1]}`"


def _inside(path: _Path) -> str:
    return f" in {_subject(path)}" if path else ""


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _shown(value: object) -> str:
    """A value as its author would recognise it, shortened."""
    kind = {dict: "a mapping", list: "a list", type(None): "nothing"}.get(type(value))
    if kind:
        return kind
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"the text `{value if len(value) <= 60 else value[:57] + '...'}`"
    return str(value)
