"""What the stand-in pretends to be, as the environment says at import."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from .refusal import require

LIES = frozenset({"label", "discarded", "downgraded", "unwritten_pads", "untraced", "silent"})
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass
class Settings:
    """`root` holds `aiter/configs`; `merge_into` takes the place of AITER's shared merge cache, None: it is refused."""

    gfx: str
    cu_num: int
    root: Path
    merge_into: Path | None
    flydsl: bool
    lenient: bool
    lies: set[str] = field(default_factory=set)

    def lies_about(self, name: str) -> bool:
        return name in self.lies


def known_lies(names: set[str]) -> set[str]:
    """The names, if each is a lie that the stand-in can tell."""
    require(names <= LIES, f"no such lie: {', '.join(sorted(names - LIES))}; there are {', '.join(sorted(LIES))}")
    return names


def _from_environment() -> Settings:
    told = {name.removeprefix("AITER_STANDIN_"): text for name, text in os.environ.items() if "AITER_STANDIN_" in name}
    return Settings(
        gfx=told.get("GFX") or "gfx950",
        cu_num=int(told.get("CU_NUM") or 256),
        root=Path(told.get("ROOT") or _PACKAGE.parent),
        merge_into=Path(told["MERGE"]) if told.get("MERGE") else None,
        flydsl=told.get("FLYDSL") != "0",
        lenient=told.get("LENIENT") == "1",
        lies=known_lies({name for name in told.get("LIES", "").split(",") if name}),
    )


SETTINGS = _from_environment()
