"""Candidates: the kernel names that a space holds for one key, but for those that cannot run or waste their tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from moeshapes.findings import Place
from moeshapes.kernel_name import KernelName, parse
from moeshapes.policy import Deny
from moeshapes.portable import default_launch, kernel_faults
from moeshapes.recipe import Format, QType, Recipe
from moeshapes.row import Key, TunedRow
from moeshapes.rules.throughput import throughput_cells
from moeshapes.tune.space import Space, Tier, Tile

Pair = tuple[str, str]
"""Names of both stages: all that tells one portable row of a key from another."""
_BITS = {Format.BF16: 16, Format.FP8: 8, Format.FP4: 4}
_LANES = 32
_MATRICES = {1: 2, 2: 1}
"""That a tile of a stage multiplies with: gate and up, then one."""


@dataclass(frozen=True)
class Candidates:
    """What is tried with tiles of `block_m` rows: names of either stage, and the stage 2 that stage 1 is tried with.

    `plain_second` is the default's, whether or not a row may name it.
    """

    block_m: int
    firsts: tuple[str, ...]
    seconds: tuple[str, ...]
    plain_second: str


def candidates_of(space: Space, key: Key, recipe: Recipe, denied: Sequence[Deny] = ()) -> list[Candidates]:
    """What a space holds for a key, by block_m: those for which both stages have a candidate."""
    tier, shape = space.tier_of(key.shape.token), key.shape
    slots = max(16, 1 << (shape.token * shape.topk - 1).bit_length())
    found = []
    for rows in (rows for rows in tier.tile_m if rows <= slots):
        fits = _fitting(space, key, recipe, denied, rows)
        firsts, seconds = (tuple(filter(fits, _names(tier, stage, key, recipe, rows))) for stage in (1, 2))
        plain = default_launch(recipe, shape.token)
        second = str(plain["kernelName2"]).replace(f"_t{plain['block_m']}x", f"_t{rows}x")
        if firsts and seconds:
            found.append(Candidates(rows, firsts, seconds, second))
    return found


def _names(tier: Tier, stage: int, key: Key, recipe: Recipe, rows: int) -> Iterator[str]:
    """Of a stage, whatever fits; tiles that divide the matrix where there are any, else the smallest."""
    tiles = tier.stage1 if stage == 1 else tier.stage2
    wide, deep = (key.shape.inter_dim, key.shape.model_dim)[:: 1 if stage == 1 else -1]
    n, k = (_dividing(sizes, dim) for sizes, dim in (({t.n for t in tiles}, wide), ({t.k for t in tiles}, deep)))
    fuses = recipe.q_type is QType.PER_1X32 and recipe.quantises_activations
    formats = f"triton_moe{stage}_a{recipe.a.value}_w{recipe.w.value}_bf16"
    for tile in tiles:
        if tile.n in n and tile.k in k and (fuses or tile.end is not True):
            yield f"{formats}_t{rows}x{tile.n}x{tile.k}_w{tile.warps}_s{tile.stages}{_end(tile, recipe)}"


def _end(tile: Tile, recipe: Recipe) -> str:
    if isinstance(tile.end, str):
        return f"_{tile.end}"
    return f"_{recipe.a.value}" if tile.end else ""


def _dividing(sizes: Iterable[int], dim: int) -> set[int]:
    ordered = sorted(sizes)
    return {size for size in ordered if dim % size == 0} or set(ordered[:1])


def _fitting(space: Space, key: Key, recipe: Recipe, denied: Sequence[Deny], rows: int) -> Callable[[str], bool]:
    """Whether a kernel is one that the backend runs, that its shapes allow, and whose tile is not too large."""
    room = space.shared_memory(key.gfx)

    def fits(name: str) -> bool:
        kernel = parse(name)
        if kernel is None or any(kernel_faults(kernel, recipe)) or is_denied(kernel, denied):
            return False
        columns = _MATRICES[kernel.stage or 1] * (kernel.tile_n or 0)
        sums = rows * columns / (_LANES * (kernel.warps or 1))
        return sums <= space.accumulators and pipeline_bytes(kernel, recipe) <= room

    return fits


def is_denied(kernel: KernelName, denied: Sequence[Deny]) -> bool:
    """Whether a shape's policy forbids the kernel."""
    return any(kernel.matches(deny.match) for deny in denied)


def pipeline_bytes(kernel: KernelName, recipe: Recipe) -> int:
    """Of a tile's operands that are under way at once, at the least: one step fewer than it has stages, no scales."""
    rows, n, k = (size or 0 for size in (kernel.tile_m, kernel.tile_n, kernel.tile_k))
    columns = _MATRICES[kernel.stage or 1] * n
    step = (rows * _BITS[recipe.a] + columns * _BITS[recipe.w]) * k // 8
    return max((kernel.stages or 0) - 1, 1) * step


def row_of(key: Key, pair: Pair, us: float, place: Place) -> TunedRow:
    """The tuned row of a pair whose call takes `us` microseconds, which stand as stage 1's: nothing parts them."""
    first = parse(pair[0])
    us = round(us, 4)
    tflops, bw = throughput_cells(key.shape, us)
    return TunedRow(
        key=key,
        tag="",
        block_m=(first.tile_m if first else None) or 0,
        ksplit=0,
        us1=us,
        kernel1=pair[0],
        err1="0",
        us2=0.0,
        kernel2=pair[1],
        err2="0",
        us=us,
        run_1stage=False,
        xbf16=0,
        flat=0,
        tflops=tflops,
        bw=bw,
        place=place,
    )


def timed(row: TunedRow, us: float) -> TunedRow:
    """The row with another time."""
    return row_of(row.key, (row.kernel1, row.kernel2), us, row.place)
