"""A checkpoint's folder: its config, which shard has which tensor, and what the shards' headers say of them.

Nothing here reads weights or imports torch.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from moeshapes.checkpoint.fault import MISSING_TENSOR, SHARD_NAME, UNREADABLE_CHECKPOINT, CheckpointError
from moeshapes.findings import Finding, Place
from moeshapes.hf_config import MAX_BYTES

INDEX, SINGLE, CONFIG = "model.safetensors.index.json", "model.safetensors", "config.json"
MAX_INDEX_BYTES = 256 << 20
"""Some five times the index of a model with half a million tensors."""
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}\.safetensors", re.ASCII)
"""No longer than file systems take."""
_LENGTH = struct.Struct("<Q")
"""What a safetensors file begins with: the length of its header."""


@dataclass(frozen=True)
class Entry:
    """A tensor as its shard's header describes it; `dtype` as safetensors spells it (`F8_E4M3`)."""

    name: str
    shard: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Index:
    """`shard_of` maps each tensor's name to the file that has it."""

    folder: Path
    shard_of: Mapping[str, str]
    config: Mapping[str, Any]
    file: str = INDEX

    @property
    def place(self) -> Place:
        return Place(str(self.folder / self.file))

    def path(self, shard: str) -> Path:
        return self.folder / shard

    def header_bytes(self, shard: str) -> int:
        with self.path(shard).open("rb") as stream:
            return _LENGTH.size + int(_LENGTH.unpack(stream.read(_LENGTH.size))[0])

    def total_bytes(self) -> int:
        """Of all shards that are there."""
        return sum(path.stat().st_size for path in map(self.path, set(self.shard_of.values())) if path.is_file())

    def fingerprint(self, shards: Iterable[str]) -> str:
        """A name for the content of these shards, by their headers, sizes and times, and for the config's."""
        digest = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for shard in sorted(set(shards)):
            stat = self.path(shard).stat()
            digest.update(f"{shard} {stat.st_size} {stat.st_mtime_ns}".encode())
            with self.path(shard).open("rb") as stream:
                digest.update(stream.read(self.header_bytes(shard)))
        return digest.hexdigest()[:20]


def open_index(folder: Path) -> Index:
    """The index of a checkpoint's folder. Raises CheckpointError with all that is wrong with it."""
    findings: list[Finding] = []
    config = _read_object(folder / CONFIG, MAX_BYTES, findings) or {}
    if (folder / INDEX).exists() or not (folder / SINGLE).exists():
        content = _read_object(folder / INDEX, MAX_INDEX_BYTES, findings)
        index = Index(folder, {} if content is None else _weight_map(folder, content, findings), config)
    else:
        index = Index(folder, _single(folder, findings), config, SINGLE)
    if findings:
        raise CheckpointError(findings)
    return index


def _read_object(path: Path, limit: int, findings: list[Finding]) -> dict[str, Any] | None:
    """A JSON object from a file, None where there is none, which is a finding."""
    value, message = None, "it is no JSON object"
    if not path.is_file():
        message = "there is no such file"
    elif path.stat().st_size > limit:
        message = f"the file has more than {limit >> 20} MiB"
    else:
        try:
            value = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            message = f"not readable JSON: {str(error) or type(error).__name__}"
        except OSError as error:
            message = f"not readable: {error.strerror}"
    if isinstance(value, dict):
        return value
    findings.append(Finding(UNREADABLE_CHECKPOINT, Place(str(path)), message))
    return None


def _weight_map(folder: Path, content: Mapping[str, Any], findings: list[Finding]) -> dict[str, str]:
    place, shards = Place(str(folder / INDEX)), content.get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
        findings.append(Finding(UNREADABLE_CHECKPOINT, place, "`weight_map` does not map tensors to files"))
        return {}
    for shard in sorted({shard for shard in shards.values() if not _SHARD.fullmatch(shard)}):
        findings.append(Finding(SHARD_NAME, place, f"`{shard}` is no plain name of a safetensors file"))
    return shards


def _single(folder: Path, findings: list[Finding]) -> dict[str, str]:
    """The tensors of a checkpoint that is one file."""
    try:
        with safe_open(folder / SINGLE, framework="numpy") as opened:
            return dict.fromkeys(opened.keys(), SINGLE)
    except (SafetensorError, OSError) as error:
        findings.append(unreadable(folder / SINGLE, error))
        return {}


def unreadable(path: Path, error: Exception) -> Finding:
    return Finding(UNREADABLE_CHECKPOINT, Place(str(path)), f"the shard cannot be read: {error}")


def entries_of(index: Index, names: Iterable[str]) -> tuple[dict[str, Entry], list[Finding]]:
    """What the headers say of the tensors of these names, and what is wrong with the shards. Each is opened once.

    Names that the index does not have are left out.
    """
    wanted: dict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        if name in index.shard_of:
            wanted[index.shard_of[name]].append(name)
    entries: dict[str, Entry] = {}
    findings: list[Finding] = []
    for shard, of_shard in wanted.items():
        path = index.path(shard)
        if not path.is_file():
            findings.append(Finding(UNREADABLE_CHECKPOINT, Place(str(path)), "the shard is not there"))
            continue
        try:
            entries.update(_described(path, shard, of_shard))
        except (SafetensorError, OSError) as error:
            findings.append(unreadable(path, error))
            continue
        absent = [name for name in of_shard if name not in entries]
        if absent:
            findings.append(Finding(MISSING_TENSOR, Place(str(path)), f"the index says that it has {listed(absent)}"))
    return entries, findings


def _described(path: Path, shard: str, names: Iterable[str]) -> dict[str, Entry]:
    with safe_open(path, framework="numpy") as opened:
        held = set(opened.keys())
        slices = {name: opened.get_slice(name) for name in names if name in held}
        return {name: Entry(name, shard, s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()}


def listed(names: list[str]) -> str:
    """`a`; `a` and 3 more: a layer has hundreds of tensors of a kind."""
    return f"`{names[0]}`" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
