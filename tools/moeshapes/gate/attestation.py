"""Attestations: the working tree's records as the gate may rely on them: whole, of what their names say, signed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from moeshapes.findings import Finding, Place
from moeshapes.record import MAX_BYTES, SIGNATURE, RecordError, parse_record, read_content
from moeshapes.record_name import file_name_of
from moeshapes.rule import Rule, Severity
from moeshapes.signature import MAX_SIGNATURE_BYTES, SignatureError, signer_of
from moeshapes.statement import PROVEN, Statement

BAD_RECORD = Rule(
    "MOE508", "bad-record", Severity.ERROR,
    what="A record cannot be read, breaks the schema, or is of something else than its name says.",
    why="It was edited, renamed or cut off: it is evidence of nothing.",
    fix="Run `moeshapes verify --fresh` on the GPU that the row is for, and commit what it writes.",
)  # fmt: skip
UNSIGNED_RECORD = Rule(
    "MOE509", "unsigned-record", Severity.ERROR,
    what="A record has no signature of an allowed signer, or was changed after it was signed.",
    why="Nobody who is trusted to run the verifier vouches for it.",
    fix="Let an allowed signer run `moeshapes verify --fresh --sign KEY`, and commit the record with its .sig file.",
)  # fmt: skip


@dataclass
class Attestations:
    """The records below `root`. With `signers`, the content of an allowed-signers file, all must be signed.

    `faults` has what is wrong with each file that was asked for.
    """

    root: Path
    signers: bytes | None = None
    faults: dict[str, Finding] = field(default_factory=dict)
    _known: dict[str, Statement] = field(default_factory=dict)

    def at(self, path: str) -> Statement | None:
        """What the record at a path says; None where it is not to be relied on, for which `faults` has the reason."""
        if path not in self._known and path not in self.faults:
            try:
                self._known[path] = self._read(path)
            except RecordError as error:
                self.faults[path] = Finding(BAD_RECORD, Place(path), str(error))
            except SignatureError as error:
                self.faults[path] = Finding(UNSIGNED_RECORD, Place(path), str(error))
        return self._known.get(path)

    def _read(self, path: str) -> Statement:
        content = read_content(self.root / path, MAX_BYTES)
        statement = Statement(parse_record(content))
        for fault in contradictions(statement, path.rpartition("/")[2]):
            raise RecordError(fault)
        if self.signers is not None:
            signer_of(content, self._signature(path), self.signers)
        return statement

    def _signature(self, path: str) -> bytes:
        file = self.root / f"{path}{SIGNATURE}"
        if not file.is_symlink() and not file.exists():
            raise SignatureError("the record is not signed")
        try:
            return read_content(file, MAX_SIGNATURE_BYTES)
        except RecordError as error:
            raise SignatureError(f"its signature: {error}") from error


def contradictions(statement: Statement, file: str) -> Iterator[str]:
    """What a record says that cannot be, or that its name denies, where each part by itself keeps to the schema."""
    record, expected = statement.record, file_name_of(statement.record)
    if file != expected:
        yield f"by its key, launch fields and use it is of {expected}"
    device = (record["device"].get("gfx"), record["device"].get("cu_num"))
    wanted = (record["key"]["gfx"], record["key"]["cu_num"])
    if statement.status == PROVEN and device != wanted:
        yield f"it says proven, but ran on {device[0]}/{device[1]}, and the row is for {wanted[0]}/{wanted[1]}"
    try:
        statement.judged_at()
    except ValueError:
        yield f"there is no time {record['time']}"
