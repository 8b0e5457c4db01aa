"""Compiles portable rows for an H200 on any machine, and prints what Triton made of them as JSON.

In a process of its own, whose GPU is a stand-in: Triton asks it for no more than which architecture it is.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from jobs import launch, problem
from moeshapes.backends.portable.backend import PortableLayer
from moeshapes.backends.portable.compile import compile_row, meta_call, meta_layer
from moeshapes.backends.portable.launch import compiling
from moeshapes.kernel_name import parse

ROWS = {
    "a8w4": ("triton_moe1_afp8_wfp4_bf16_t16x64x128_w4_s3_fp8", "triton_moe2_afp8_wfp4_bf16_t16x64x64_w4_s4_reduce"),
    "fp8_block": ("triton_moe1_afp8_wfp8_bf16_t64x64x128_w4_s3", "triton_moe2_afp8_wfp8_bf16_t64x64x64_w4_s3_reduce"),
    "fp8_token": ("triton_moe1_afp8_wfp8_bf16_t64x64x128_w4_s3", "triton_moe2_afp8_wfp8_bf16_t64x64x64_w4_s3_reduce"),
    "bf16": ("triton_moe1_abf16_wbf16_bf16_t16x64x64_w4_s3", "triton_moe2_abf16_wbf16_bf16_t16x128x64_w4_s2_atomic"),
}
_PRODUCT = re.compile(r"(?:wgmma\.mma_async|\bmma)\.sync\.aligned\.\S+")


class StandIn:
    """A driver of an H200 that is not there."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")


def row_of(recipe: str) -> dict[str, Any]:
    first = parse(ROWS[recipe][0])
    assert first is not None
    assert first.tile_m is not None
    return launch(*ROWS[recipe], block_m=first.tile_m)


def main() -> None:
    driver.set_active(StandIn())
    found: dict[str, Any] = {}
    for recipe in sys.argv[1:]:
        what, row = problem(recipe, model_dim=1024, inter_dim=512), row_of(recipe)
        names = compile_row(what, row, 8, (8, 5))
        arm = PortableLayer(meta_layer(what)).arm(row, 8)
        with torch.inference_mode(), compiling():
            arm.run(meta_call(what, 8))
        kernels = [arm.compiled[stage] for stage in (1, 2)]
        products = sorted({product for kernel in kernels for product in _PRODUCT.findall(kernel.asm["ptx"])})
        found[recipe] = {
            "names": names,
            "shared": [kernel.metadata.shared for kernel in kernels],
            "products": products,
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
