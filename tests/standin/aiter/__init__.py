"""A stand-in for AITER: `tests/standin/README.md` says what it has."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger("aiter")
if not logger.handlers:
    _handler = logging.StreamHandler()
    _handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
    logger.setLevel(os.getenv("AITER_LOG_LEVEL", "INFO").upper())
    logger.addHandler(_handler)
    logger.propagate = False

from . import standin as standin  # noqa: E402
from .ops.enum import ActivationType, QuantType  # noqa: E402
from .ops.quant import get_torch_quant, per_tensor_quant, pertoken_quant  # noqa: E402
from .standin.functions import ck_moe_stage1_fwd, ck_moe_stage2_fwd  # noqa: E402
from .utility import dtypes as dtypes  # noqa: E402

__all__ = [
    "ActivationType", "QuantType", "ck_moe_stage1_fwd", "ck_moe_stage2_fwd", "dtypes", "get_torch_quant", "logger",
    "per_tensor_quant", "pertoken_quant", "standin",
]  # fmt: skip
