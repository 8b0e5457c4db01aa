"""Origins: the model, parallelism and padding that a table's row follows from, found by trying them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from moeshapes.model import Block, Model
from moeshapes.row import UntunedRow

_RANKS = (1, 2, 4, 8, 16, 32, 64)
_MULTIPLES = (64, 128, 256)


@dataclass(frozen=True)
class Origin:
    """A way to get a row's dims and counts. `override` has columns that do not follow; `also` other models."""

    model: str
    block: str
    tp: int
    ep: int
    fused: bool
    pad: Mapping[str, int] = field(default_factory=dict)
    override: Mapping[str, int] = field(default_factory=dict)
    also: tuple[str, ...] = ()

    @property
    def strain(self) -> tuple[int, int, int, int]:
        """How much must be supposed: overrides count most, then pads, then ranks."""
        return (len(self.override), len(self.pad), self.ep, self.tp)


def find_origin(row: UntunedRow, models: Mapping[str, Model]) -> Origin | None:
    """The plainest origin of a row; None where no model gives its dims. Equal ones are told by `also`."""
    found = [origin for name in sorted(models) for origin in _origins(row, models[name])]
    best = min(found, key=lambda origin: origin.strain, default=None)
    if best is None:
        return None
    also = {origin.model for origin in found if origin.strain == best.strain} - {best.model}
    return Origin(best.model, best.block, best.tp, best.ep, best.fused, best.pad, best.override, tuple(sorted(also)))


def _origins(row: UntunedRow, model: Model) -> Iterator[Origin]:
    for name, block in model.blocks.items():
        if row.act_type != f"ActivationType.{block.activation.capitalize()}":
            continue
        for fused in (False, True) if block.n_shared_experts else (False,):
            for tp, ep in [*((ranks, 1) for ranks in _RANKS), *((ranks, ranks) for ranks in _RANKS[1:])]:
                pad = _pads(row, block, tp if ep == 1 else 1)
                if pad is not None and block.n_routed_experts % ep == 0:
                    override = _override(row, block, ep, fused)
                    if override is not None:
                        yield Origin(model.id, name, tp, ep, fused, pad, override)


def _pads(row: UntunedRow, block: Block, ranks: int) -> dict[str, int] | None:
    """The padding that makes the model's dims into the row's, none where they are equal; None where no padding does."""
    width = block.moe_intermediate_size
    multiples = {
        "model_dim": _multiple(block.expert_hidden_size, row.model_dim, padded=False),
        "inter_dim": _multiple(-(-width // ranks), row.inter_dim, padded=width % ranks != 0),
    }
    pads = {dim: multiple for dim, multiple in multiples.items() if multiple and multiple > 1}
    return None if None in multiples.values() else pads


def _multiple(logical: int, size: int, padded: bool) -> int | None:
    """The multiple that `logical` is rounded up to, 1 where it need not be; None where none gives `size`."""
    if logical == size and not padded:
        return 1
    return next((multiple for multiple in _MULTIPLES if -(-logical // multiple) * multiple == size), None)


def _override(row: UntunedRow, block: Block, ep: int, fused: bool) -> dict[str, int] | None:
    """The counts that do not follow: none, or a topk that is one off, as tables of EP have it; None for other rows."""
    shared = block.n_shared_experts if fused else 0
    if row.expert != block.n_routed_experts // ep + shared:
        return None
    off = row.topk - (block.num_experts_per_tok + shared)
    if off == 0:
        return {}
    return {"topk": row.topk} if ep > 1 and abs(off) == 1 else None
