"""Records: the verifier's evidence for one (row, use) on one device. One JSON file each; no torch here."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from moeshapes.files import write_atomically

RECORD_FORMAT = 1
MAX_BYTES = 1 << 20
RECORDS = "generated/records"
"""Where attested records stand below a repository's root."""
SIGNATURE = ".sig"
"""What a record's signature adds to the record's name."""
CACHE = "build/records"
"""Where `verify` keeps the records that are not committed, below a repository's root."""
REPORT = "build/verify.md"
"""The last verification as markdown, below a repository's root."""
_SHOWN = 160
"""Characters of a fault: it quotes the record."""
_VERIFIER_SOURCES = (
    "activation.py",
    "arithmetic.py",
    "dispatch.py",
    "kernel_grammar.py",
    "kernel_name.py",
    "oracle.py",
    "portable.py",
    "problem.py",
    "products.py",
    "quant.py",
    "recipe.py",
    "workload.py",
    "backends",
    "checkpoint",
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


class RecordError(ValueError):
    """Why a file is no record, in one line."""


def read_content(path: Path, limit: int) -> bytes:
    """A plain file's bytes. Raises RecordError for what is none, or has more than `limit` bytes."""
    try:
        if not S_ISREG(path.lstat().st_mode):
            raise RecordError("not a plain file: links, folders and devices are not read")
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror}") from error
    if len(content) > limit:
        raise RecordError(f"larger than {limit >> 10} KiB")
    return content


def parse_record(content: bytes) -> dict[str, Any]:
    """The record that a file's bytes are. Raises RecordError where they are none, as the schema says."""
    return checked(decode(content))


def decode(content: bytes) -> Any:
    """What a file's bytes are as JSON, whatever it says. Raises RecordError where they are none."""
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_unique)
    except RecordError:
        raise
    except json.JSONDecodeError as error:
        raise RecordError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, more digits than Python reads, or too deep
        raise RecordError("not JSON that can be read") from error


def checked(record: Any) -> dict[str, Any]:
    """The record that decoded JSON is. Raises RecordError where the schema says that it is none."""
    validator = _validator()
    if not validator.is_valid(record):
        raise RecordError(_in_one_line(validator, record))
    found: dict[str, Any] = record
    return found


def _refuse(constant: str) -> None:
    """NaN is above no limit and below none, so that no schema keeps it out."""
    raise RecordError(f"{constant} is no number of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What a reviewer reads first must be what counts."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RecordError("a mapping has the same key twice")
    return found


def _in_one_line(validator: Any, record: object) -> str:
    from jsonschema.exceptions import best_match

    error = best_match(validator.iter_errors(record))
    path = ".".join(map(str, error.absolute_path)) or "the record"
    return f"`{path[:_SHOWN]}`: {error.message[:_SHOWN]}"


def _validator() -> Any:
    """Imported here, since few who name records read one."""
    from moeshapes.schema_check import strict_validator

    return strict_validator("record")


@dataclass(frozen=True)
class RecordStore:
    """A folder of records, each under the name of its job, and one of those that stand under names of their own."""

    folder: Path
    named: Path | None = None

    def path(self, job_id: str, name: str = "") -> Path:
        return self.named / f"{name}.json" if self.named and name else self.folder / f"{job_id}.json"

    def load(self, job_id: str, name: str = "") -> dict[str, Any] | None:
        """The record under `name` or else its job's; None where none is there that is a record of this job."""
        found = (read_record(path) for path in dict.fromkeys((self.path(job_id, name), self.path(job_id))))
        return next((record for record in found if record and record["job"] == job_id), None)

    def save(self, record: dict[str, Any], name: str = "") -> Path:
        """Writes a record. A signature of the one that was there goes: it would be a wrong one of this."""
        path = self.path(record["job"], name)
        write_atomically(path, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode())
        path.with_name(path.name + SIGNATURE).unlink(missing_ok=True)
        return path


def read_record(path: Path) -> dict[str, Any] | None:
    """The record that a file is, None where it is none."""
    try:
        return parse_record(read_content(path, MAX_BYTES))
    except RecordError:
        return None
