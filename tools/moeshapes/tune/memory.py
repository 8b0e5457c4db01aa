"""What earlier runs found out: small JSON files, each under a digest of all that it depends on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moeshapes.files import write_atomically
from moeshapes.record import RecordError, digest, read_content

_MAX_BYTES = 1 << 16


@dataclass(frozen=True)
class Memory:
    """A folder of findings; `fresh` knows only of those that it has kept itself."""

    folder: Path
    fresh: bool = False
    _own: set[Path] = field(default_factory=set)

    def recall(self, question: object) -> dict[str, Any] | None:
        """What was found for plain data `question`; None where nothing was, or the file is not to be trusted."""
        if self.fresh and self._path(question) not in self._own:
            return None
        try:
            kept = json.loads(read_content(self._path(question), _MAX_BYTES))
        except (RecordError, ValueError, RecursionError):
            return None
        found = kept.get("found") if isinstance(kept, dict) and kept.get("of") == _as_read(question) else None
        return found if isinstance(found, dict) else None

    def keep(self, question: object, found: dict[str, Any]) -> None:
        """Raises OSError where it cannot be written."""
        content = json.dumps({"of": question, "found": found}, indent=1, sort_keys=True) + "\n"
        write_atomically(self._path(question), content.encode())
        self._own.add(self._path(question))

    def _path(self, question: object) -> Path:
        return self.folder / f"{digest(question)}.json"


def _as_read(question: object) -> object:
    """Plain data as it comes back from a file: tuples as lists."""
    return json.loads(json.dumps(question))
