"""Records: the verifier's evidence for one (row, use) on one device. One JSON file each; no torch here."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from moeshapes.files import write_atomically

RECORD_FORMAT = 1
REPORT = "build/verify.md"
"""The last verification as markdown, below a repository's root."""
_VERIFIER_SOURCES = (
    "activation.py",
    "arithmetic.py",
    "kernel_grammar.py",
    "kernel_name.py",
    "oracle.py",
    "portable.py",
    "problem.py",
    "quant.py",
    "recipe.py",
    "workload.py",
    "backends",
    "verify",
)


def digest(value: object) -> str:
    """A short, stable name for plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def verifier_digest() -> str:
    """A name for the code that judges: evidence of other code is not evidence of this one."""
    package = Path(__file__).parent
    files = sorted(file for name in _VERIFIER_SOURCES for file in _python_files(package / name))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:20]


def _python_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


@cache
def _validator() -> Any:
    """Imported here, since few who name records read one."""
    from jsonschema import Draft202012Validator

    text = (resources.files("moeshapes") / "schema" / "record.schema.json").read_text("utf-8")
    return Draft202012Validator(json.loads(text))


@dataclass(frozen=True)
class RecordStore:
    """A folder of records, each under the name of its job, and one of those that stand under names of their own."""

    folder: Path
    named: Path | None = None

    def path(self, job_id: str, name: str = "") -> Path:
        return self.named / f"{name}.json" if self.named and name else self.folder / f"{job_id}.json"

    def load(self, job_id: str, name: str = "") -> dict[str, Any] | None:
        """The record under `name` or else its job's; None where none is there that is a record of this job."""
        found = (_read(path, job_id) for path in dict.fromkeys((self.path(job_id, name), self.path(job_id))))
        return next((record for record in found if record), None)

    def save(self, record: dict[str, Any], name: str = "") -> Path:
        path = self.path(record["job"], name)
        write_atomically(path, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())
        return path


def _read(path: Path, job_id: str) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except (OSError, ValueError, RecursionError):
        return None
    return record if _validator().is_valid(record) and record["job"] == job_id else None


def _refuse(constant: str) -> None:
    """NaN is above no limit and below none, so that no schema keeps it out."""
    raise ValueError(f"{constant} is no number of JSON")
