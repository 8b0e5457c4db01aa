"""What the verifier asks of a backend."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import Tensor

from moeshapes.verify.lookup import NO_LOOKUP, Lookup
from moeshapes.workload import Call, Layer


class NotRunAsNamedError(RuntimeError):
    """Another kernel ran than the row names, or none that could be seen."""


class ShadowedRowError(RuntimeError):
    """The merged tables resolve the row's key to another row."""


class UnsupportedRowError(ValueError):
    """A row or recipe that a backend has no kernels for."""


class Stages(Protocol):
    """The two stages alone, for backends that can run them apart."""

    def first(self, call: Call) -> Tensor:
        """The intermediate as stage 2 reads it: fp32 `[M * k, I]`, slots of a token together, logical width."""

    def second(self, call: Call, intermediate: Tensor) -> Tensor:
        """Stage 2 fed with those values: bf16 `[M, H]`, padded width. They are on the recipe's grid already."""


class Arm(Protocol):
    """One way to compute calls of a prepared layer: a row's kernels, or what runs without a row.

    The verifier holds `activate()` around every eager run and every capture, never around a replay. It raises
    NotRunAsNamedError where `launched()` is not what the row names.
    """

    def activate(self) -> AbstractContextManager[None]:
        """The environment and the caches under which the library picks this arm's kernels."""

    def run(self, call: Call, out: Tensor | None = None) -> Tensor:
        """The layer's output, bf16 `[M, H]` with padded width. `out` has at least M rows: the first M are written."""

    def launched(self) -> list[str]:
        """The kernels that really ran, as they were seen since the arm was made.

        Raises NotRunAsNamedError where the arm is a row's and others than those that the row names did.
        """

    def stages(self) -> Stages | None:
        """The stages alone, None where the backend cannot run them apart."""


class Prepared(Protocol):
    """A layer laid out for the backend's kernels; kept while jobs share it."""

    def arm(self, launch: Mapping[str, Any] | None, token: int, lookup: Lookup = NO_LOOKUP) -> Arm:
        """The arm of a row's launch fields (row.LAUNCH_COLUMNS); None: what runs at bucket `token` without a row.

        `lookup` is the job's: the key, and what its lookup finds in the merged tables beside the row.
        """


class Backend(Protocol):
    """`emulated` backends prove a recipe and this harness, never silicon."""

    name: str
    emulated: bool

    def prepare(self, layer: Layer) -> Prepared: ...
