"""Which tile FlyDSL runs where the named one does not divide inter_dim (contract 4.8)."""

from __future__ import annotations

import functools
import logging

from ...standin.settings import SETTINGS

logger = logging.getLogger("aiter")
_ALWAYS_FITS, _PREFERRED = 128, 256


@functools.lru_cache(maxsize=256)
def _warn_tile_override(axis: str, inter_dim: int, requested: int, resolved: int) -> None:
    """Once a process for each replacement."""
    if not SETTINGS.lies_about("silent"):
        logger.warning(
            "FlyDSL MoE: %s=%d does not divide inter_dim=%d (not 256-aligned); forcing %s=%d.",
            axis, requested, inter_dim, axis, resolved,
        )  # fmt: skip


def _resolved(axis: str, inter_dim: int, tile: int) -> int:
    if inter_dim % tile == 0:
        return tile
    fits = _ALWAYS_FITS if inter_dim % _PREFERRED else _PREFERRED
    if inter_dim % fits:
        return tile
    _warn_tile_override(axis, inter_dim, tile, fits)
    return fits


def resolve_flydsl_stage1_tile_n(inter_dim: int, tile_n: int) -> int:
    return _resolved("tile_n", inter_dim, tile_n)


def resolve_flydsl_stage2_tile_k(inter_dim: int, tile_k: int) -> int:
    return _resolved("tile_k", inter_dim, tile_k)
