"""A tuned table as AITER indexes it (contract 3.3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..jit.utils.chip_info import gfx_from_cu_num
from .settings import SETTINGS

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger("aiter")

INDEX = (
    "gfx", "cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a",
    "q_dtype_w", "q_type", "use_g1u1", "doweight_stage1",
)  # fmt: skip
TOKEN, ACTIVATION = INDEX.index("token"), INDEX.index("act_type")
ANY_ACTIVATION = "__ignore__"
TIERS = (32768, 131072)
Rows = dict[tuple[Any, ...], dict[str, Any]]


def load(path: str) -> tuple[Rows, Rows]:
    """Rows by key, and by key without its activation; the first row of a key is kept."""
    import pandas as pd

    rows = _with_gfx(pd.read_csv(path))
    if "_tag" in rows:
        rows = rows[rows["_tag"].fillna("") != "flydsl_fallback"]
    primary = _first_of_each(rows, f"duplicate tuned rows (primary) in {path}")
    fallback = _first_of_each(
        rows.assign(act_type=ANY_ACTIVATION), f"duplicate tuned rows after disabling act_type in {path}"
    )
    return primary, fallback


def _with_gfx(rows: pd.DataFrame) -> pd.DataFrame:
    by_cus = rows["cu_num"].map(gfx_from_cu_num)
    said = rows.get("gfx", by_cus)
    unsaid = said.isna() | said.astype(str).isin(["0", "", "nan", "None"])
    filled: pd.DataFrame = rows.assign(gfx=said.where(~unsaid, by_cus))
    return filled


def _first_of_each(rows: pd.DataFrame, complaint: str) -> Rows:
    again = rows.duplicated(subset=list(INDEX), keep="first")
    if again.any() and not SETTINGS.lies_about("silent"):
        logger.warning("[fused_moe] %s; keeping first match for %d rows", complaint, int(again.sum()))
    kept: Rows = rows.loc[~again].set_index(list(INDEX)).to_dict("index")
    return kept


def find(tables: tuple[Rows, Rows], key: tuple[Any, ...]) -> dict[str, Any] | None:
    """The row of a key. An enum equals no text, so rows are found without their activation only."""
    primary, fallback = tables
    token = key[TOKEN]
    tiers = [token, *(tier for tier in reversed(TIERS) if token in TIERS and tier < token)]
    for tier in tiers:
        asked = (*key[:TOKEN], tier, *key[TOKEN + 1 :])
        whatever = (*asked[:ACTIVATION], ANY_ACTIVATION, *asked[ACTIVATION + 1 :])
        row = primary.get(asked) or fallback.get(whatever)
        if row is not None:
            return row
    return None
