"""Explanations of calls that the portable kernels serve: an exact key, its row or fixed tiles, no rule of AITER's."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property

from moeshapes.deployment import Deployment
from moeshapes.device import has_aiter
from moeshapes.explain import Step, bucket_line, named_row, row_json
from moeshapes.family import TRITON
from moeshapes.portable import DEFAULT_IN_WORDS, default_launch, why_no_kernels
from moeshapes.recipe import Recipe, fp8_is_fnuz, recipe_of
from moeshapes.report.evidence import Evidence
from moeshapes.row import TunedRow
from moeshapes.runtime.call import RuntimeCall
from moeshapes.runtime.merged import MergedTable
from moeshapes.runtime.nearest import Near, nearest_keys


@dataclass(frozen=True)
class Proof:
    """The attested record of a row under a use: its path below the root, and what it says. Both may be empty."""

    path: str
    says: str

    def __str__(self) -> str:
        return f"{self.path}: {self.says}" if self.says else "none: `moeshapes verify` makes one on a GPU of the kind"


@dataclass(frozen=True)
class PortableExplanation:
    """What a call finds in tables of the portable kernels and what it launches. `subject` says whose call it is.

    `left_out` is why a declared bucket is not tuned. `proof` is None where there is no row, or no use of it is known.
    """

    subject: str
    call: RuntimeCall
    row: TunedRow | None
    left_out: str
    proof: Proof | None
    nearest: tuple[Near, ...]

    @property
    def has_errors(self) -> bool:
        return bool(self._why_not)

    @cached_property
    def launch(self) -> dict[str, object]:
        """The launch fields of what runs."""
        return self.row.launch() if self.row else default_launch(self._recipe, self.call.bucket)

    @property
    def kernels(self) -> tuple[str, ...]:
        return (str(self.launch["kernelName1"]), str(self.launch["kernelName2"]))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        known = (Step("record", (str(self.proof),)),) if self.proof else ()
        return (
            Step("backend", (f"portable Triton kernels: {self._why_portable}",)),
            Step("activations", (f"{self._recipe.a.value}: as the recipe {self._recipe.name} has them, at any count",)),
            Step("bucket", (bucket_line(self.call),)),
            Step("key", (str(self.call.key),)),
            Step("row", self._row_lines),
            *known,
            Step("runs", self._run_lines),
        )

    @property
    def _recipe(self) -> Recipe:
        shape = self.call.key.shape
        recipe = recipe_of(shape.q_dtype_a, shape.q_dtype_w, shape.q_type)
        if recipe is None:
            raise ValueError("a call of no recipe")
        return recipe

    @property
    def _why_portable(self) -> str:
        looked_up = f"the key is looked up in {TRITON} alone"
        if has_aiter(self.call.gfx):
            return f"the shape's csv is one of theirs, which AITER does not read; {looked_up}"
        return f"AITER does not run on {self.call.gfx}; {looked_up}"

    @property
    def _why_not(self) -> str:
        return why_no_kernels(self._recipe, fp8_is_fnuz(self.call.gfx))

    @property
    def _row_lines(self) -> tuple[str, ...]:
        if self.row:
            return tuple(named_row(self.row))
        why = (f"left out: {self.left_out}",) if self.left_out else ()
        return ("none", *why, *(f"nearest, never borrowed: {near}" for near in self.nearest))

    @property
    def _run_lines(self) -> tuple[str, ...]:
        if self._why_not:
            return (f"nothing: {self._why_not}",)
        block_m = f"block_m {self.launch['block_m']}"
        if self.row:
            return (f"as the row names them, {block_m}",)
        return (f"the backend's default, {DEFAULT_IN_WORDS}; here {block_m}", *self.kernels)

    def as_json(self) -> dict[str, object]:
        call = self.call
        return {
            "subject": self.subject,
            "backend": "portable",
            "tokens": call.tokens,
            "bucket": call.bucket,
            "key": {"gfx": call.gfx, "cu_num": call.cu_num, **asdict(call.key.shape)},
            "row": row_json(self.row) if self.row else None,
            "left_out": self.left_out,
            "record": asdict(self.proof) if self.proof else None,
            "runs": None if self._why_not else self.launch,
            "nearest": [str(near) for near in self.nearest],
            "steps": [{"name": step.name, "lines": list(step.lines)} for step in self.steps],
        }


def explain_portable(
    subject: str,
    call: RuntimeCall,
    table: MergedTable,
    deployment: Deployment | None = None,
    evidence: Evidence | None = None,
) -> PortableExplanation:
    """What a call finds and launches; `deployment` is whose it is, where that is known. `evidence` has the records."""
    row = table.exact(call.key)
    nearest = () if row else tuple(nearest_keys(call.key, table))
    left_out = deployment.entry.left_out.get(call.bucket) if deployment else None
    proof = _proof(row, deployment, evidence) if row and deployment and evidence else None
    return PortableExplanation(subject, call, row, left_out.reason if left_out else "", proof, nearest)


def _proof(row: TunedRow, deployment: Deployment, evidence: Evidence) -> Proof:
    use = deployment.declared.use
    path, record = evidence.attested_path(row, use), evidence.attested(row, use)
    if record is not None:
        return Proof(path, f"{record['status']} on {record['device'].get('board', 'no GPU')}, {record['time']}")
    return Proof(path, evidence.unread.get(path, ""))
