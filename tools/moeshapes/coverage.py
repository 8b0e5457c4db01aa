"""Coverage: which token buckets of the deployments a tuned table serves, by which kernels, and which not, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from moeshapes.deployment import Deployment
from moeshapes.dispatch import BUCKETS, LARGEST_STEP, TOP, tokens_of
from moeshapes.explain import Explanation, explain
from moeshapes.explain_portable import explain_portable
from moeshapes.kernel_name import parse
from moeshapes.recipe import Format
from moeshapes.row import TunedRow
from moeshapes.runtime.merged import MergedTable


class Status(str, Enum):
    """How calls of a bucket are served."""

    EXACT = "exact"
    OTHER_ACTIVATION = "other activation"
    TIER = "tier fallback"
    DISCARDED = "discarded"
    LEFT_OUT = "left out"
    NOT_ASKED = "not asked for"
    GAP = "gap"


@dataclass(frozen=True)
class Cell:
    """One bucket of a deployment. `family` names the kernels that are launched; `note` says why it is as it is.

    `tokens` is the smallest token count of the bucket that asks for the recipe's activation format. `others` are the
    other formats that calls of the bucket ask for.
    """

    bucket: int
    status: Status
    tokens: int
    family: str
    note: str
    row: TunedRow | None
    others: tuple[Format, ...]
    has_errors: bool


@dataclass(frozen=True)
class Coverage:
    """A deployment's cells, one a bucket, ascending."""

    deployment: Deployment
    cells: tuple[Cell, ...]

    @property
    def gaps(self) -> list[int]:
        return [cell.bucket for cell in self.cells if cell.status is Status.GAP]


def cover(deployments: Iterable[Deployment], table: MergedTable) -> list[Coverage]:
    """Every deployment's buckets against a merged table of the backend that serves it."""
    return [Coverage(d, tuple(_cell(d, bucket, table) for bucket in BUCKETS)) for d in deployments]


def totals(coverages: Iterable[Coverage]) -> Mapping[Status, int]:
    """How many cells there are of each status."""
    counts = Counter(cell.status for coverage in coverages for cell in coverage.cells)
    return {status: counts[status] for status in Status}


def _cell(deployment: Deployment, bucket: int, table: MergedTable) -> Cell:
    return (_portable_cell if deployment.is_portable else _aiter_cell)(deployment, bucket, table)


def _portable_cell(deployment: Deployment, bucket: int, table: MergedTable) -> Cell:
    """Every bucket asks for the recipe's own format, and finds its own row or none."""
    tokens = tokens_of(bucket)[0]
    answer = explain_portable(deployment.name, deployment.call(tokens), table, deployment)
    kernels = [parse(name) for name in answer.kernels]
    family = " + ".join(kernel.family for kernel in kernels if kernel)
    status = Status.EXACT if answer.row else Status.LEFT_OUT if answer.left_out else Status.GAP
    note = "" if answer.row else answer.left_out or "the portable backend's default"
    return Cell(bucket, status, tokens, family, note, answer.row, (), answer.has_errors)


def _aiter_cell(deployment: Deployment, bucket: int, table: MergedTable) -> Cell:
    asks = deployment.caller.asks(bucket)
    others = tuple(number for number in asks.values() if number is not deployment.recipe.a)
    tokens = next((count for count, number in asks.items() if number is deployment.recipe.a), None)
    if tokens is None:
        wanted = " or ".join(number.value for number in others)
        note = f"calls ask for {wanted} activations"
        return Cell(bucket, Status.NOT_ASKED, next(iter(asks)), "", note, None, others, False)
    answer = explain(deployment.name, deployment.call(tokens), table)
    status, note = _status(deployment, bucket, answer)
    return Cell(bucket, status, tokens, _family(answer), note, answer.row, others, answer.has_errors)


def _status(deployment: Deployment, bucket: int, answer: Explanation) -> tuple[Status, str]:
    if answer.discarded:
        return Status.DISCARDED, answer.discarded
    if answer.match is None:
        left_out = deployment.entry.left_out
        # The top bucket falls back to the largest step, so what is said of that holds for it too.
        said = left_out.get(bucket) or (left_out.get(LARGEST_STEP) if bucket == TOP else None)
        return (Status.LEFT_OUT, said.reason) if said else (Status.GAP, answer.plan.path)
    if not answer.match.own_tier:
        return Status.TIER, f"the row for {answer.match.row.key.shape.token}"
    if not answer.match.own_activation:
        return Status.OTHER_ACTIVATION, f"a row of {answer.match.row.key.shape.act_type.partition('.')[2]}"
    return Status.EXACT, ""


def _family(answer: Explanation) -> str:
    """`flydsl_moe1 + moe2_layout`: the families of what is launched, by name where there is one."""
    kernels = (parse(stage.name) if stage.name else None for stage in answer.plan.stages)
    families = (
        kernel.family if kernel else stage.family for kernel, stage in zip(kernels, answer.plan.stages, strict=True)
    )
    return " + ".join(families)


def strays(cells: Sequence[Cell]) -> list[int]:
    """Buckets that are served by other kernels than both neighbours, which agree."""
    served = [cell for cell in cells if cell.row]
    triples = zip(served, served[1:], served[2:], strict=False)
    return [here.bucket for before, here, after in triples if before.family == after.family != here.family]
