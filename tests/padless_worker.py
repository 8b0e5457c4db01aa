"""The worker, but for kernels with `_xcd4` in their names: their emulation leaves padded columns unwritten."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from moeshapes.arithmetic import arithmetic_of
from moeshapes.backends.emulate import EmulateBackend, EmulatedArm, EmulatedLayer
from moeshapes.verify.lookup import NO_LOOKUP, Lookup
from moeshapes.verify.worker import serve
from moeshapes.workload import Layer
from profiles import LIES
from sensitivity.lies import PadUnwritten


class PadlessLayer(EmulatedLayer):
    def arm(self, launch: Mapping[str, Any] | None, token: int, lookup: Lookup = NO_LOOKUP) -> EmulatedArm:
        if launch is None or LIES not in launch["kernelName1"]:
            return super().arm(launch, token, lookup)
        return PadUnwritten(self, arithmetic_of(launch, self.problem.recipe))


class PadlessBackend(EmulateBackend):
    def prepare(self, layer: Layer) -> PadlessLayer:
        return PadlessLayer(layer)


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout, lambda name: PadlessBackend())
