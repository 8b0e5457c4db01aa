"""Which tuned table serves a process (contract 1.2 to 1.4)."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ..standin.refusal import require
from ..standin.settings import SETTINGS

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger("aiter")

AITER_ROOT_DIR = str(SETTINGS.root)
AITER_CONFIG_FMOE = os.getenv("AITER_CONFIG_FMOE", f"{AITER_ROOT_DIR}/aiter/configs/tuned_fmoe.csv")
_FAMILY = "tuned_fmoe"
_SHARED_CACHE = "/tmp/aiter_configs"


class AITER_CONFIG:  # noqa: N801 - AITER's own name
    """The tables of one process."""

    @property
    def AITER_CONFIG_FMOE_FILE(self) -> str:  # noqa: N802
        """The fused-MoE table: the variable AITER_CONFIG_FMOE as it is, or the merged family."""
        return self.get_config_file("AITER_CONFIG_FMOE", AITER_CONFIG_FMOE, _FAMILY)

    def update_config_files(self, file_path: str, merge_name: str) -> str:
        """One path as it is; several merged into one file, whose path is returned."""
        paths = file_path.split(os.pathsep) if file_path else []
        if len(paths) <= 1:
            return file_path
        into = SETTINGS.merge_into
        require(
            into is not None,
            f"tables were to be merged into the cache that all processes of a machine share ({merge_name}):"
            " name one file in AITER_CONFIG_FMOE",
        )
        assert into is not None
        return _merge([path for path in paths if _exists(path)], file_path, merge_name, into)

    @functools.lru_cache(maxsize=20)  # noqa: B019 - AITER caches by the one instance there is
    def get_config_file(self, env_name: str, default_file: str, tuned_file_name: str) -> str:
        """The table that the variable names, else the default one with all of model_configs."""
        named = os.getenv(env_name)
        if named:
            require(not named.startswith(_SHARED_CACHE), f"{env_name} names a file of the shared merge cache: {named}")
            return self.update_config_files(named, tuned_file_name)
        folder = Path(f"{AITER_ROOT_DIR}/aiter/configs/model_configs/")
        found = [p for p in folder.glob(f"*{tuned_file_name}*.csv") if p.is_file() and "untuned" not in p.name]
        if not found:
            return default_file
        tables = ":".join([default_file, *map(str, found)])
        logger.info("merge tuned file under model_configs/ and configs/ %s", tables)
        return self.update_config_files(tables, tuned_file_name)


def _exists(path: str) -> bool:
    if os.path.exists(path):
        return True
    logger.info("path: %s (not exist)", path)
    return False


def _merge(paths: list[str], asked: str, merge_name: str, into: Path) -> str:
    import pandas as pd

    if not paths:
        raise FileNotFoundError(f"No existing config files found in '{asked}' when merging '{merge_name}'.")
    tables = [pd.read_csv(path) for path in paths]
    columns = _all_columns(tables)
    merged = pd.concat([_filled(table, columns) for table in tables if not table.empty], ignore_index=True)
    if "_tag" in merged:
        merged["_tag"] = merged["_tag"].fillna("")
    _refuse_duplicates(merged, merge_name)
    into.mkdir(parents=True, exist_ok=True)
    written = into / f"{merge_name}.csv"
    merged.to_csv(written, index=False)
    return str(written)


def _all_columns(tables: list[pd.DataFrame]) -> list[str]:
    columns = list(tables[0].columns)
    for table in tables[1:]:
        for name in table.columns:
            if name not in columns:
                columns.insert(columns.index("tflops" if "tflops" in columns else columns[-1]), name)
    return columns


def _filled(table: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    from .utils.chip_info import gfx_from_cu_num

    for name in columns:
        if name not in table.columns:
            table[name] = table["cu_num"].map(gfx_from_cu_num) if name == "gfx" and "cu_num" in table else 0
    filled: pd.DataFrame = table[columns]
    return filled


def _refuse_duplicates(merged: pd.DataFrame, merge_name: str) -> None:
    """AITER would rewrite its own tables here, and then raise; the stand-in only raises."""
    import pandas as pd

    untuned = Path(f"{AITER_ROOT_DIR}/aiter/configs/{'untuned'.join(merge_name.rsplit('tuned', 1))}.csv")
    if not untuned.exists():
        logger.warning("Untuned config file not found: %s. Using all columns for deduplication.", untuned)
        return
    names = [*pd.read_csv(untuned).columns, "cu_num", "gfx", "_tag"]
    found = merged.duplicated(subset=[name for name in names if name in merged], keep=False)
    if found.any():
        raise RuntimeError(f"Found {int(found.sum())} duplicate shape entries during merge of '{merge_name}'.")


AITER_CONFIGS = AITER_CONFIG()
