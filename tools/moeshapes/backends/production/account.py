"""Whether what was seen is what a row names: every way in which AITER runs something else than its table says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from moeshapes.backends.production.symbols import is_launched
from moeshapes.backends.production.witness import Choice, Chosen, Witness
from moeshapes.kernel_name import LABEL_FAMILIES, parse

_NO_KERNEL = ("", "Null")
_TELLING_LINES = {
    re.compile(pattern): meaning
    for pattern, meaning in {
        r"discarding Opus tuned config": "the row was thrown away",
        r"Opus stage2 config unsupported": "the row was thrown away",
        r"using heuristic FlyDSL fallback": "FlyDSL's fallback ran",
        r"using untuned a16wi4 fallback": "FlyDSL's fallback ran",
        r"FlyDSL MoE: tile_[nk]=": "another tile ran",
        r"ck kernel not found": "CK chose another kernel",
        r"but is_shuffled=False": "the weights' mark was lost",
    }.items()
}
"""What AITER writes where it does not run the row as it stands (contract 3.7)."""
_SHOWN = 160
"""Characters of a line that is quoted."""


def departures(launch: Mapping[str, Any], witness: Witness) -> list[str]:
    """Why the row of these launch fields was not run as named; empty where all that was seen agrees with it."""
    if not witness.choices:
        return ["no lookup of AITER's was seen"]
    if not witness.symbols:
        return ["no call was traced"]
    reasons = [reason for choice in witness.choices for reason in _of_choice(launch, choice)]
    reasons += _of_lines(witness.lines)
    for tokens, symbols in witness.symbols.items():
        reasons += [f"{reason} at {tokens} tokens" for reason in _of_symbols(launch, symbols)]
    return list(dict.fromkeys(reasons))


def _named(launch: Mapping[str, Any]) -> list[str]:
    return [name for name in (launch["kernelName1"], launch["kernelName2"]) if name not in _NO_KERNEL]


def _of_choice(launch: Mapping[str, Any], choice: Choice) -> Iterator[str]:
    names = _named(launch)
    if len(names) != len(choice.stages):
        yield f"the row names {len(names)} kernels, AITER chose {choice}"
        return
    for stage, (name, chosen) in enumerate(zip(names, choice.stages, strict=True), 1):
        if not _is_as_named(stage, name, chosen, choice):
            yield f"stage {stage}: the row names {_described(name)}, AITER chose {chosen}"
    for column, value in _columns(choice).items():
        if value is not None and int(launch[column]) != value and not _goes_by_name(names[0], column):
            yield f"the row has {column} {launch[column]}, AITER took {value}"


def _is_as_named(stage: int, name: str, chosen: Chosen, choice: Choice) -> bool:
    """A CK-Tile name in stage 2 chooses its path, and block_m the kernel; in stage 1 AITER never looks at it."""
    parsed = parse(name)
    if parsed is not None and parsed.family in LABEL_FAMILIES:
        return stage == 2 and chosen.wrapper.startswith("cktile") and parsed.tile_m == choice.block_m
    return chosen.kernel == name


def _described(name: str) -> str:
    parsed = parse(name)
    is_label = parsed is not None and parsed.family in LABEL_FAMILIES
    return f"`{name}`, a label that is no kernel" if is_label else f"`{name}`"


def _columns(choice: Choice) -> dict[str, int | None]:
    one_stage = len(choice.stages) == 1
    return {
        "block_m": choice.block_m,
        "ksplit": choice.ksplit,
        "xbf16": int(choice.xbf16) if one_stage else None,
        "flat": choice.flat if one_stage else None,
    }


def _goes_by_name(first: str, column: str) -> bool:
    """mxmoe's tile is that of its name, whatever the row says."""
    parsed = parse(first)
    return column == "block_m" and parsed is not None and parsed.family == "mxmoe_g1"


def _of_lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        for pattern, meaning in _TELLING_LINES.items():
            if pattern.search(line):
                yield f"{meaning}: {line.strip()[:_SHOWN]}"


def _of_symbols(launch: Mapping[str, Any], symbols: tuple[str, ...]) -> Iterator[str]:
    for name in _named(launch):
        parsed = parse(name)
        if parsed is None or not is_launched(parsed, symbols):
            seen = ", ".join(symbols) or "none at all"
            yield f"no kernel of `{name}` was seen, but {seen}"
