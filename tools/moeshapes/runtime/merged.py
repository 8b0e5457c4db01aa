"""The merged table: the tuned rows of a family in AITER's order, and which of them a key finds (contract 3.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from moeshapes.dispatch import LARGEST_STEP, TOP
from moeshapes.family import FALLBACK_TAG
from moeshapes.row import Key, TunedRow, UntunedRow
from moeshapes.runtime.version import ANY_ACTIVATION, FALLBACK_ROWS_DROPPED, GFX_IN_KEY, TOP_BUCKET, Version
from moeshapes.table import Kind, Line, Table, canonical_cell, key_of, read_tuned_rows

_ANY = "ActivationType.*"
_COMPARED_AS_TEXT = ("gfx", "dtype", "q_dtype_a", "q_dtype_w", "q_type")
_LAUNCH_NUMBERS = ("block_m", "ksplit", "run_1stage", "xbf16", "flat")


@dataclass(frozen=True)
class Match:
    """The row that a key found. `shadowed` are the rows behind it that differ in act_type alone: none reaches them."""

    row: TunedRow
    asked: Key
    shadowed: tuple[TunedRow, ...] = ()

    @property
    def own_activation(self) -> bool:
        return self.row.key.shape.act_type == self.asked.shape.act_type

    @property
    def own_tier(self) -> bool:
        return self.row.key.shape.token == self.asked.shape.token

    @property
    def hangs_on_file_order(self) -> bool:
        """Whether the choice among rows is that of AITER's unsorted file listing: they stand in several model files."""
        files = {row.place.file for row in (self.row, *self.shadowed)}
        return len(files) > 1 and all("model_configs" in file for file in files)


@dataclass(frozen=True)
class MergedTable:
    """Tuned rows in merged order: the general table, then the model tables (by name; AITER takes the disk's order)."""

    rows: tuple[TunedRow, ...]
    version: Version = field(default_factory=Version)

    def find(self, key: Key, flydsl: bool = True) -> Match | None:
        """What AITER's lookup of a key finds: an exact key, then one of any activation, then TOP's smaller tier."""
        tiers = [key.shape.token]
        if key.shape.token == TOP and self.version.has(TOP_BUCKET):
            tiers.append(LARGEST_STEP)
        for token in tiers:
            rows = self._served(replace(key, shape=replace(key.shape, token=token)), flydsl)
            if rows:
                return Match(rows[0], key, tuple(rows[1:]))
        return None

    def exact(self, key: Key) -> TunedRow | None:
        """The row of a key as it stands, the first of them: all that the portable backend looks up."""
        return self._exact.get(key)

    @cached_property
    def _exact(self) -> Mapping[Key, TunedRow]:
        return {row.key: row for row in reversed(self.rows)}

    def _served(self, key: Key, flydsl: bool) -> Sequence[TunedRow]:
        rows: Sequence[TunedRow] = self._index.get(self._lookup_key(key), ())
        tagged = [row for row in rows if row.tag == FALLBACK_TAG]
        if tagged:
            rows = self._with_fallback(rows, tagged, flydsl)
        if self.version.has(ANY_ACTIVATION):
            return rows
        return [row for row in rows if row.key.shape.act_type == key.shape.act_type]

    def _with_fallback(self, rows: Sequence[TunedRow], tagged: list[TunedRow], flydsl: bool) -> Sequence[TunedRow]:
        primary = [row for row in rows if row.tag != FALLBACK_TAG]
        if self.version.has(FALLBACK_ROWS_DROPPED) or flydsl:
            return primary
        named = (primary[0].kernel1, primary[0].kernel2) if primary else ()
        return tagged if any(kernel.startswith("flydsl_") for kernel in named) else primary

    def _lookup_key(self, key: Key) -> Key:
        any_activation = replace(key.shape, act_type=_ANY)
        return Key(key.gfx if self.version.has(GFX_IN_KEY) else "", key.cu_num, any_activation)

    @cached_property
    def _index(self) -> Mapping[Key, list[TunedRow]]:
        index: dict[Key, list[TunedRow]] = defaultdict(list)
        for row in self.rows:
            index[self._lookup_key(row.key)].append(row)
        return dict(index)

    @cached_property
    def shapes(self) -> Mapping[tuple[str, int, UntunedRow], list[int]]:
        """Every shape, as a key without its token and activation (both neutral), with its buckets ascending."""
        shapes: dict[tuple[str, int, UntunedRow], set[int]] = defaultdict(set)
        for row in self.rows:
            if row.tag != FALLBACK_TAG:
                shape = replace(row.key.shape, token=0, act_type=_ANY)
                shapes[row.key.gfx, row.key.cu_num, shape].add(row.key.shape.token)
        return {shape: sorted(tokens) for shape, tokens in shapes.items()}


def merge(tables: Iterable[Table], version: Version | None = None) -> MergedTable:
    """The table that AITER's lookup sees. Rows that exact comparison can never find are left out; others are not."""
    rows = tuple(row for table in tables if table.kind is Kind.TUNED for row in _loaded_rows(table))
    return MergedTable(rows, version or Version())


def _loaded_rows(table: Table) -> Iterator[TunedRow]:
    sound = {row.place.line: row for row in read_tuned_rows(table)}
    for line in table.lines:
        if all(_spelled_as_asked(table, line, column) for column in _COMPARED_AS_TEXT):
            row = sound.get(line.number) or _repaired(table, line)
            if row:
                yield row


def _spelled_as_asked(table: Table, line: Line, column: str) -> bool:
    return column not in table.index or table.cell(line, column) == canonical_cell(table, line, column)


def _repaired(table: Table, line: Line) -> TunedRow | None:
    """A row of which only cells that the lookup does not need are wrong: AITER loads and uses it all the same."""
    key = key_of(table, line)
    cells = {column: canonical_cell(table, line, column) for column in (*_LAUNCH_NUMBERS, "us1", "us2", "us")}
    if key is None or None in (cells["block_m"], cells["ksplit"], cells["run_1stage"]):
        return None
    numbers = {column: int(cells[column] or 0) for column in _LAUNCH_NUMBERS}
    texts = {column: canonical_cell(table, line, column) or "" for column in ("err1", "err2", "tflops", "bw", "_tag")}
    return TunedRow(
        key=key,
        tag=texts["_tag"],
        block_m=numbers["block_m"],
        ksplit=numbers["ksplit"],
        us1=float(cells["us1"] or "nan"),
        kernel1=canonical_cell(table, line, "kernelName1") or "",
        err1=texts["err1"],
        us2=float(cells["us2"] or "nan"),
        kernel2=canonical_cell(table, line, "kernelName2") or "",
        err2=texts["err2"],
        us=float(cells["us"] or "nan"),
        run_1stage=numbers["run_1stage"] == 1,
        xbf16=numbers["xbf16"],
        flat=numbers["flat"],
        tflops=texts["tflops"],
        bw=texts["bw"],
        place=table.place(line),
    )
