"""What a worker's result is evidence of, and under which name the evidence is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from moeshapes.record import RECORD_FORMAT
from moeshapes.record_name import file_name, folder_name, is_shipped
from moeshapes.row import Key
from moeshapes.statement import EMULATED, FAIL, PROVEN
from moeshapes.verify.job import Job
from moeshapes.verify.plan import Planned, Subject

PASSED = (PROVEN, EMULATED)


def is_attested(key: Key, result: Mapping[str, Any]) -> bool:
    """Whether real kernels ran on the very kind of GPU that the key is for."""
    device = result["device"]
    return not result["emulated"] and (device.get("gfx"), device.get("cu_num")) == (key.gfx, key.cu_num)


def status_of(key: Key, result: Mapping[str, Any]) -> str:
    """By what the worker saw, never by what was planned."""
    if result["verdict"] != "pass":
        return FAIL
    return PROVEN if is_attested(key, result) else EMULATED


def vouching_for(record: Mapping[str, Any], subject: Subject) -> dict[str, Any]:
    """A stored record of the subject's job as the subject's own: jobs of the same problem may share one."""
    return {**record, **_of_whom(subject)}


def _of_whom(subject: Subject) -> dict[str, Any]:
    key, use = subject.key, subject.use
    return {
        "key": {"gfx": key.gfx, "cu_num": key.cu_num, **asdict(key.shape)},
        "use": use.as_json() | {"id": use.id},
    }


def record_of(item: Planned, job: Job, result: Mapping[str, Any], time: datetime) -> dict[str, Any]:
    return {
        **_of_whom(item.subject),
        "format": RECORD_FORMAT,
        "job": job.id,
        "status": status_of(item.subject.key, result),
        "reasons": result["reasons"],
        "launch": job.launch,
        "backend": job.backend,
        "device": result["device"],
        "versions": dict(item.versions),
        "seed": job.seed,
        "numerics": result["numerics"],
        "speed": result.get("speed"),
        "launched": result["launched"],
        "time": time.astimezone(timezone.utc).isoformat(timespec="seconds"),
    }


def attested_name(subject: Subject) -> str:
    """`CSV/HASH-USE-GFX-CU`: where a shipped row's attested record stands; empty for what is not shipped."""
    row = subject.row
    if row is None or not is_shipped(row.place.file):
        return ""
    file = file_name(subject.key, row.launch(), subject.use)
    return f"{folder_name(row.place.file)}/{file.removesuffix('.json')}"
