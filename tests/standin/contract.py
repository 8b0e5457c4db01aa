"""The recorded facts of AITER that the production backend rests on, and how an importable `aiter` departs from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml

CONTRACT = Path(__file__).with_name("contract.yaml")
_NOTHING = object()
_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
Facts = Mapping[str, Any]


def recorded() -> Facts:
    """The table of facts, as committed."""
    facts: Facts = yaml.safe_load(CONTRACT.read_text(encoding="utf-8"))
    return facts


def departures(facts: Facts) -> list[str]:
    """Every fact that does not hold of the `aiter` that can be imported now, a line each."""
    return [
        line
        for kind, check in _CHECKS.items()
        for where, wanted in facts[kind].items()
        for line in check(where, wanted)
    ]


def found(where: str) -> Any:
    """The object at `module:attribute.attribute`; `_NOTHING` where there is none."""
    module, _, path = where.partition(":")
    try:
        value: Any = import_module(module)
        for name in filter(None, path.split(".")):
            value = getattr(value, name)
    except (ImportError, AttributeError):
        return _NOTHING
    return value


def parameters(function: Callable[..., Any]) -> list[str]:
    """`name` or `name = default`, in order; starred ones with their stars, keyword-only ones behind a lone star."""
    told: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        stars = _STARS.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(name.startswith("*") for name in told):
            told.append("*")
        default = "" if parameter.default is parameter.empty else f" = {spelled(parameter.default)}"
        told.append(f"{stars}{parameter.name}{default}")
    return told


def spelled(value: object) -> str:
    """A default value in words that do not depend on the device: its fp8 is `fp8`."""
    if value in (torch.float8_e4m3fn, torch.float8_e4m3fnuz):
        return "fp8"
    if isinstance(value, Enum) and isinstance(value, str):
        return repr(str(value.value))
    if hasattr(value, "name") and hasattr(value, "value"):
        return f"{type(value).__name__}.{value.name}"
    return repr(value)


def _signature(where: str, wanted: list[str]) -> Iterator[str]:
    function = found(where)
    if function is _NOTHING:
        yield f"{where} is gone"
        return
    now = parameters(function)
    if now == wanted:
        return
    gone = [name for name in wanted if name not in now]
    new = [name for name in now if name not in wanted]
    change = f"gone: {', '.join(gone) or 'none'}; new: {', '.join(new) or 'none'}" if gone or new else "another order"
    yield f"{where} has other parameters ({change})"


def _enum(where: str, wanted: Mapping[str, Any]) -> Iterator[str]:
    enum = found(where)
    for name, value in wanted.items():
        now = getattr(enum, name, _NOTHING)
        if now is _NOTHING or getattr(now, "value", now) != value:
            yield f"{where}.{name} is {getattr(now, 'value', 'gone')}, not {value!r}"
    if enum is not _NOTHING:
        yield from (f"{where}.{name} is new" for name in sorted(_members(enum) - set(wanted)))


def _members(enum: Any) -> set[str]:
    """Of Python's enums and of pybind11's alike."""
    return set(getattr(enum, "__members__", {}))


def _equal(where: str, wanted: object) -> Iterator[str]:
    value = found(where)
    if value is _NOTHING or str(value) != wanted:
        yield f"{where} is {'gone' if value is _NOTHING else value}, not {wanted}"


def _fields(where: str, wanted: list[str]) -> Iterator[str]:
    value = found(where)
    now = [] if value is _NOTHING else list(value.__dataclass_fields__)
    if now != wanted:
        yield f"{where} has the fields {', '.join(now) or 'of nothing'}, not {', '.join(wanted)}"


def _has(where: str, wanted: list[str]) -> Iterator[str]:
    missing = [name for name in wanted if found(f"{where}:{name}") is _NOTHING]
    if missing:
        yield f"{where} lacks {', '.join(missing)}"


def _cached(where: str, wanted: list[str]) -> Iterator[str]:
    for name in wanted:
        if not callable(getattr(found(f"{where}:{name}"), "cache_clear", None)):
            yield f"{where}:{name} has no cache to clear"


_CHECKS: dict[str, Callable[[str, Any], Iterator[str]]] = {
    "signatures": _signature,
    "enums": _enum,
    "values": _equal,
    "fields": _fields,
    "names": _has,
    "caches": _cached,
}
