"""AITER's stage functions, by name. What is bound to them says what runs; the stand-in's layer does the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

Stage = partial[NoReturn]


def _not_alone(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError("the stand-in runs stages inside fused_moe alone")


def _flydsl_stage1_wrapper(*_: object, **__: object) -> NoReturn:
    _not_alone()


def _flydsl_stage2_wrapper(*_: object, **__: object) -> NoReturn:
    _not_alone()


def _flydsl_v2_stage2_wrapper(*_: object, **__: object) -> NoReturn:
    _not_alone()


def _mxfp4_a4w4_stage1_fw(*_: object, **__: object) -> NoReturn:
    _not_alone()


def _mxfp4_a4w4_stage2_fw(*_: object, **__: object) -> NoReturn:
    _not_alone()


def opus_a8w4_stage1_wrapper(*_: object, **__: object) -> NoReturn:
    _not_alone()


def opus_a8w4_stage2_wrapper(*_: object, **__: object) -> NoReturn:
    _not_alone()


def ck_moe_stage1(*_: object, **__: object) -> NoReturn:
    _not_alone()


def ck_moe_stage1_fwd(*_: object, **__: object) -> NoReturn:
    _not_alone()


def ck_moe_stage2_fwd(*_: object, **__: object) -> NoReturn:
    _not_alone()


def cktile_moe_stage1(*_: object, **__: object) -> NoReturn:
    _not_alone()


def cktile_moe_stage2(*_: object, **__: object) -> NoReturn:
    _not_alone()


def asm_stage1(*_: object, **__: object) -> NoReturn:
    _not_alone()


def fused_moe_1stage(*_: object, **__: object) -> NoReturn:
    _not_alone()


@dataclass
class MOEMetadata:
    """What `get_2stage_cfgs` answers with (AITER's fields and their order)."""

    stage1: Callable[..., Any] | None
    stage2: Callable[..., Any] | None
    block_m: int
    ksplit: int
    run_1stage: bool = False
    has_bias: bool = False
    use_non_temporal_load: bool = True
    fuse_quant: str = ""
    stage2_has_bias: bool = False
    flat: bool | int = False
    output_aux: bool = False
    prequant: bool = True
    skip_inter_quant: bool = False
    route_bucket: str = ""
    expected_sorted_blocks: int | None = None
    min_sorted_blocks: int | None = None
    max_sorted_blocks: int | None = None
