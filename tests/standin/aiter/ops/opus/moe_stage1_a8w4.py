"""opus stage 1, by name."""

from __future__ import annotations

from ...standin.functions import opus_a8w4_stage1_wrapper

__all__ = ["opus_a8w4_stage1_wrapper"]
