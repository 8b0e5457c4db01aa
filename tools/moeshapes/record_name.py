"""Names of attested records: the folder of a row's table, then a hash of what the evidence is of.

The hash is of key, launch fields and use, never of times or versions: newer evidence replaces older, and evidence of a
row that has changed is of no row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from moeshapes.record import digest
from moeshapes.row import UNTUNED_COLUMNS, Key
from moeshapes.use import Use

FILE = re.compile(r"[0-9a-f]{20}-[A-Za-z0-9._+-]+\.json")
"""What the name of a record's file is like."""
SHIPPED = "generated"
"""The top folder of rows that have attested records."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._+-]+")


def is_shipped(file: str) -> bool:
    """Whether rows of a table, by its path below the root, have attested records."""
    return PurePosixPath(file).parts[:1] == (SHIPPED,)


def folder_name(file: str) -> str:
    """The folder, below that of all records, for the rows of a table."""
    return PurePosixPath(file).stem


def file_name(key: Key, launch: Mapping[str, object], use: Use) -> str:
    """`HASH-USE-GFX-CU.json` for a row's key and launch fields under a use."""
    return _file_name(key.gfx, key.cu_num, key.shape.cells(), launch, use.as_json(), use.id)


def file_name_of(record: Mapping[str, Any]) -> str:
    """The name that a record, as the schema says, is to have by what it says it is of."""
    key, use = record["key"], {name: value for name, value in record["use"].items() if name != "id"}
    cells = [str(key[column]) for column in UNTUNED_COLUMNS]
    return _file_name(key["gfx"], key["cu_num"], cells, record["launch"], use, record["use"]["id"])


def _file_name(gfx: str, cu_num: int, cells: list[str], launch: object, use: object, use_id: str) -> str:
    parts = (digest([gfx, cu_num, *cells, launch, use, use_id]), use_id, gfx, str(cu_num))
    return f"{'-'.join(_NOT_IN_NAMES.sub('-', part) for part in parts)}.json"
