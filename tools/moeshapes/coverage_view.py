"""Views of coverage: a grid that fits a screen, with what it does not say by itself below; and JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from moeshapes.coverage import Cell, Coverage, Status, strays, totals
from moeshapes.dispatch import BUCKETS, LARGEST_STEP, TOP
from moeshapes.yaml_text import listed_tokens

_LETTERS = {
    "mxmoe_g1": "M", "mxmoe_g2": "M", "flydsl_moe1": "F", "flydsl_moe2": "F", "moe2_layout": "L", "ck_gemm": "C",
    "opus_moe1": "O", "opus_moe2": "O", "asm_1stage": "A", "asm_stage1": "A", "CK-Tile": "T", "CK": "c",
    "triton_moe1": "P", "triton_moe2": "P",
}  # fmt: skip
_LETTER_WORDS = "M mxmoe, F FlyDSL, L FlyDSL's layout stage 2, C CK, O opus, A assembly, T CK-Tile, c CK's own choice"
_PORTABLE_WORDS = ", P portable Triton"
_MARKS = {Status.EXACT: " ", Status.OTHER_ACTIVATION: "~", Status.TIER: "^"}
_WITHOUT_ROW = {Status.GAP: "..", Status.LEFT_OUT: "--", Status.NOT_ASKED: "", Status.DISCARDED: "xx"}
_LEGEND = (
    "~ another activation's row, ^ the smaller tier's row, ! a crash or wrong results to be expected",
    "no row: .. gap, -- left out with a reason, xx found and thrown away; blank: no call asks for it",
)
_SAID_BY_THE_GRID = (Status.EXACT, Status.TIER, Status.NOT_ASKED)
_WIDTH = 5


def as_text(coverages: Sequence[Coverage]) -> str:
    """A line a deployment, a column a bucket; then legend, gaps, reasons, strays and totals."""
    width = max((len(coverage.deployment.name) for coverage in coverages), default=0)
    header = " " * width + "".join(f"{_short(bucket):>{_WIDTH}}" for bucket in BUCKETS)
    grid = [
        f"{c.deployment.name:<{width}}" + "".join(f"{_mark(cell):>{_WIDTH}}" for cell in c.cells) for c in coverages
    ]
    return "\n".join(
        [
            header,
            *(line.rstrip() for line in grid),
            "",
            f"a letter a kernel, stage 1 then stage 2: {_letter_words(coverages)}",
            *_LEGEND,
            "",
            *_notes(coverages),
            *_top_note(coverages),
            _totals(coverages),
        ]
    )


def _letter_words(coverages: Sequence[Coverage]) -> str:
    portable = any(coverage.deployment.is_portable for coverage in coverages)
    return _LETTER_WORDS + (_PORTABLE_WORDS if portable else "")


def _short(bucket: int) -> str:
    return f"{bucket >> 10}k" if bucket >= 1024 else str(bucket)


def _mark(cell: Cell) -> str:
    if cell.row is None:
        return f"{_WITHOUT_ROW[cell.status]}{'!' if cell.has_errors else ' '}"
    letters = "".join(_LETTERS.get(family, "?") for family in cell.family.split(" + "))
    return f"{letters}{'!' if cell.has_errors else _MARKS[cell.status]}"


def _notes(coverages: Sequence[Coverage]) -> Iterator[str]:
    for coverage in coverages:
        yield from (f"{coverage.deployment.name}: {note}" for note in notes_of(coverage))


def notes_of(coverage: Coverage) -> Iterator[str]:
    by_note: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for cell in coverage.cells:
        if cell.status not in _SAID_BY_THE_GRID:
            by_note[cell.status.value, _declared(coverage, cell), cell.note].append(cell.bucket)
    for (status, declared, note), buckets in by_note.items():
        yield f"{status} at {listed_tokens(buckets)}{declared}: {note}"
    for bucket in strays(coverage.cells):
        yield f"{bucket} alone is served by other kernels than its neighbours"


def _declared(coverage: Coverage, cell: Cell) -> str:
    """Of a gap, whether the shape asks for a row, or is silent on a bucket that calls look up all the same."""
    if cell.status is not Status.GAP:
        return ""
    # The top bucket falls back to the largest step, so what is said of that holds for it too.
    asked = {cell.bucket, LARGEST_STEP} if cell.bucket == TOP else {cell.bucket}
    return " (neither declared nor left out)" if asked.isdisjoint(coverage.deployment.entry.tokens) else " (declared)"


def _top_note(coverages: Sequence[Coverage]) -> Iterator[str]:
    """What AITER's top bucket is, where it is named below the grid."""
    of_aiter = (coverage for coverage in coverages if not coverage.deployment.is_portable)
    cells = (cell for coverage in of_aiter for cell in coverage.cells if cell.bucket == TOP)
    if any(cell.status not in _SAID_BY_THE_GRID for cell in cells):
        yield f"{TOP}: calls of that many tokens and more; the row for {LARGEST_STEP} serves them where there is none"


def _totals(coverages: Sequence[Coverage]) -> str:
    counts = ", ".join(f"{number} {status.value}" for status, number in totals(coverages).items() if number)
    return f"deployments x buckets: {len(coverages)} x {len(BUCKETS)}: {counts or 'nothing'}"


def as_json(coverages: Sequence[Coverage]) -> dict[str, object]:
    """Everything, cell by cell, and the totals."""
    return {
        "deployments": [_coverage_json(coverage) for coverage in coverages],
        "totals": {status.value: number for status, number in totals(coverages).items()},
    }


def _coverage_json(coverage: Coverage) -> dict[str, object]:
    deployment, shape = coverage.deployment, coverage.deployment.declared.row
    return {
        "deployment": deployment.shape.deployment,
        "use": deployment.declared.use.id,
        "gfx": deployment.gpu.gfx,
        "cu_num": deployment.gpu.cu_num,
        "recipe": deployment.recipe.name,
        "shape": shape.dims,
        "strays": strays(coverage.cells),
        "buckets": [_cell_json(cell) for cell in coverage.cells],
    }


def _cell_json(cell: Cell) -> dict[str, object]:
    return {
        "bucket": cell.bucket,
        "status": cell.status.value,
        "note": cell.note,
        "family": cell.family,
        "row": str(cell.row.place) if cell.row else None,
        "also_asks_for": [number.value for number in cell.others],
        "has_errors": cell.has_errors,
    }
