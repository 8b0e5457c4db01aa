"""From shapes to table rows and uses, and what only shows when all shapes are seen together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

from moeshapes.findings import Finding, Place
from moeshapes.geometry import Geometry, geometry, unsaid_fusion
from moeshapes.model import Block, Model
from moeshapes.policy import Deny
from moeshapes.reach import missing_kernels, unasked_buckets
from moeshapes.recipe import Format, torch_dtype
from moeshapes.row import Key, TunedRow, UntunedRow, is_portable
from moeshapes.rule import Rule, Severity
from moeshapes.schema_check import nearest
from moeshapes.shape import Entry, Gpu, Shape
from moeshapes.use import Use
from moeshapes.yaml_text import listed_tokens

UNKNOWN_MODEL = Rule(
    "MOE046", "unknown-model", Severity.ERROR,
    what="A shape file names a model, or a block of a model, that is not there.",
    why="Its rows cannot be derived.",
    fix="Correct the name, or add the model to models/.",
)  # fmt: skip
ROW_TWICE = Rule(
    "MOE050", "row-twice", Severity.ERROR,
    what="One row is declared twice with the same use.",
    why="Whoever changes one of the two will not see the other, and the row would be verified twice.",
    fix="Keep one. Checkpoints that share an architecture share a model file: list them under `checkpoint`.",
)  # fmt: skip
ROW_IN_TWO_FILES = Rule(
    "MOE051", "row-in-two-files", Severity.ERROR,
    what="One row for one GPU is declared for two CSV files.",
    why="Tuned, it would stand in both, and AITER stops at start on a key that it finds twice.",
    fix="Name one CSV in both shape files.",
)  # fmt: skip
POLICY_CONFLICT = Rule(
    "MOE052", "policy-conflict", Severity.ERROR,
    what="Shapes that share a row deny different kernels.",
    why="A table has one tuned row for the key: a kernel cannot be allowed for one use of it and denied for another.",
    fix="Give both shapes the same `kernels.deny`.",
)  # fmt: skip


@dataclass(frozen=True)
class DeclaredRow:
    """A row that a shape declares for a CSV, the GPUs that it is for, and one use of it. `place` is its token's.

    `q_type` is how the untuned CSV spells that column where the lookup has the row's own, else empty. `left_out` are
    the buckets that its entry leaves out with a reason.
    """

    csv: str
    row: UntunedRow
    gpus: tuple[Gpu, ...]
    use: Use
    deny: tuple[Deny, ...]
    place: Place
    q_type: str = ""
    left_out: frozenset[int] = frozenset()

    @property
    def is_portable(self) -> bool:
        """Whether tuned rows for it name portable kernels, and not AITER's."""
        return is_portable(self.csv)

    @property
    def written(self) -> UntunedRow:
        """The row as the untuned CSV has it."""
        return replace(self.row, q_type=self.q_type) if self.q_type else self.row

    @property
    def keys(self) -> Iterator[Key]:
        return (Key(gpu.gfx, gpu.cu_num, self.row) for gpu in self.gpus)


@dataclass(frozen=True)
class Declarations:
    """All that the YAML files declare. `rows` are in canonical order: by CSV, then as `row_order` says, then by use."""

    models: Mapping[str, Model]
    shapes: tuple[Shape, ...]
    rows: tuple[DeclaredRow, ...]

    @cached_property
    def _by_key(self) -> Mapping[tuple[Key, bool], tuple[DeclaredRow, ...]]:
        declared: dict[tuple[Key, bool], list[DeclaredRow]] = defaultdict(list)
        for row in self.rows:
            for key in row.keys:
                declared[key, row.is_portable].append(row)
        return {key: tuple(rows) for key, rows in declared.items()}

    def of(self, key: Key, portable: bool = False) -> tuple[DeclaredRow, ...]:
        """What is declared for a key of AITER's tables or of the portable kernels': one DeclaredRow a use."""
        return self._by_key.get((key, portable), ())

    def of_row(self, row: TunedRow) -> tuple[DeclaredRow, ...]:
        """What is declared for a tuned row, by its key and its kernels; none where no shape declares it."""
        return self.of(row.key, row.is_portable)

    def uses_of(self, row: TunedRow) -> tuple[Use, ...]:
        """The uses of a tuned row."""
        return tuple(declared.use for declared in self.of_row(row))

    def policy_of(self, row: TunedRow) -> tuple[Deny, ...]:
        """What the shapes of a tuned row deny; they agree where the declarations have no findings."""
        return next((declared.deny for declared in self.of_row(row) if declared.deny), ())

    def of_models(self, models: Collection[str]) -> Declarations:
        """What is declared of those models, by their ids, alone. All models are still known."""
        shapes = tuple(shape for shape in self.shapes if shape.model in models)
        deployments = {shape.deployment for shape in shapes}
        rows = tuple(row for row in self.rows if row.use.deployment in deployments)
        return replace(self, shapes=shapes, rows=rows)

    def left_out_of(self, row: TunedRow) -> frozenset[int]:
        """The buckets of a tuned row's shape that are left out with a reason."""
        return frozenset(token for declared in self.of_row(row) for token in declared.left_out)

    @cached_property
    def csvs(self) -> Mapping[str, tuple[UntunedRow, ...]]:
        """Each untuned CSV's rows in canonical order, each once."""
        rows: dict[str, dict[UntunedRow, None]] = defaultdict(dict)
        for declared in self.rows:
            rows[declared.csv][declared.written] = None
        return {csv: tuple(unique) for csv, unique in rows.items()}


def row_order(row: UntunedRow) -> tuple[object, ...]:
    """Canonical order of a table: rows of one shape together, with their tokens ascending."""
    _, *shape = row.cells()
    return (row.model_dim, row.inter_dim, row.expert, row.topk, shape, row.token)


def expand(models: Mapping[str, Model | None], shapes: Iterable[Shape]) -> tuple[Declarations, list[Finding]]:
    """Every row and use of the shapes, and all that is wrong with them. A model that is None is there but faulty."""
    findings: list[Finding] = []
    rows: list[DeclaredRow] = []
    known = tuple(shapes)
    for shape in known:
        findings += missing_kernels(shape)
        for entry in shape.entries:
            declared, wrong = _expand_entry(shape, entry, models)
            rows += declared
            findings += wrong
    rows.sort(key=lambda declared: (declared.csv, row_order(declared.row), declared.use.id))
    sound = {name: model for name, model in models.items() if model}
    return Declarations(sound, known, tuple(rows)), [*findings, *_clashes(rows)]


def _expand_entry(
    shape: Shape, entry: Entry, models: Mapping[str, Model | None]
) -> tuple[list[DeclaredRow], list[Finding]]:
    block, findings = _block(shape, entry, models)
    if block is None:
        return [], findings
    dims, findings = geometry(shape, entry, block)
    findings += unasked_buckets(shape, entry, block)
    if findings or shape.faulty - {"moe"} or entry.faulty - {"tokens", "left_out", "unreachable"}:
        return [], findings
    left_out = frozenset(entry.left_out)
    rows = [
        DeclaredRow(
            shape.csv, _row(shape, block, dims, token, gfx), gpus, use, shape.deny, place, entry.q_type, left_out
        )
        for gfx, gpus in _by_flavour(shape)
        for use in _uses(shape, entry, block, dims)
        for token, place in entry.tokens.items()
    ]
    return rows, list(unsaid_fusion(shape, entry, block, dims))


def _block(shape: Shape, entry: Entry, models: Mapping[str, Model | None]) -> tuple[Block | None, list[Finding]]:
    if not shape.is_sound("model"):
        return None, []
    if shape.model not in models:
        message = f"there is no model `{shape.model}` in models/{nearest(shape.model, list(models))}"
        return None, [Finding(UNKNOWN_MODEL, shape.document.place("model"), message)]
    model = models[shape.model]
    if model is None:
        return None, []
    if entry.block in model.blocks:
        return model.blocks[entry.block], []
    hint = nearest(entry.block, list(model.blocks)) or f"; it has {', '.join(model.blocks)}"
    message = f"model `{shape.model}` has no block `{entry.block}`{hint}"
    return None, [Finding(UNKNOWN_MODEL, shape.document.place("moe", entry.index, "block"), message)]


def _by_flavour(shape: Shape) -> Iterator[tuple[str, tuple[Gpu, ...]]]:
    """The shape's GPUs, those together whose rows are spelled alike, each group with one of its architectures."""
    groups: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in sorted(shape.gpus):
        groups[torch_dtype(Format.FP8, gpu.gfx) if Format.FP8 in (shape.recipe.a, shape.recipe.w) else ""].append(gpu)
    return ((gpus[0].gfx, tuple(gpus)) for gpus in groups.values())


def _row(shape: Shape, block: Block, dims: Geometry, token: int, gfx: str) -> UntunedRow:
    return UntunedRow(
        token=token,
        model_dim=dims.model_dim,
        inter_dim=dims.inter_dim,
        expert=dims.expert,
        topk=dims.topk,
        act_type=f"ActivationType.{block.activation.capitalize()}",
        dtype=torch_dtype(Format.BF16, gfx),
        q_dtype_a=torch_dtype(shape.recipe.a, gfx),
        q_dtype_w=torch_dtype(shape.recipe.w, gfx),
        q_type=str(shape.recipe.q_type),
        use_g1u1=1,
        doweight_stage1=int(shape.doweight_stage1),
    )


def _uses(shape: Shape, entry: Entry, block: Block, dims: Geometry) -> list[Use]:
    use = Use(
        deployment=shape.deployment,
        block=entry.block,
        recipe=shape.recipe.name,
        activation=block.activation,
        gate_mode=shape.gate_mode,
        hidden_pad=dims.hidden_pad,
        intermediate_pad=dims.intermediate_pad,
        swiglu_limit=block.swiglu_limit,
        swiglu_alpha=block.swiglu_alpha,
        situ_beta=block.situ_beta,
        situ_linear_beta=block.situ_linear_beta,
        bias=block.bias,
        shared_experts=dims.shared_experts,
        ep=shape.ep,
        env=shape.env,
    )
    if not (dims.hidden_pad or dims.intermediate_pad):
        return [use]
    return [replace(use, pads=pads) for pads in shape.pads]


def _clashes(rows: Iterable[DeclaredRow]) -> Iterator[Finding]:
    """Declarations of one row that cannot both stand, reported at both places; all tokens of a pair together."""
    by_row: dict[tuple[UntunedRow, bool], list[DeclaredRow]] = defaultdict(list)
    for declared in rows:
        by_row[declared.row, declared.is_portable].append(declared)
    clashes: dict[tuple[Rule, str, str, bool, str], list[tuple[DeclaredRow, DeclaredRow]]] = defaultdict(list)
    for same in by_row.values():
        for one, other in combinations(same, 2):
            for rule in _clash_rules(one, other):
                for here, there in ((one, other), (other, one)):
                    first = here.place < there.place  # tells apart two entries of one block in one file
                    clashes[rule, here.use.id, there.use.id, first, _described(here)].append((here, there))
    for (rule, _, _, _, described), pairs in clashes.items():
        here, there = pairs[0]
        tokens = listed_tokens({pair[0].row.token for pair in pairs})
        yield Finding(rule, here.place, _CLASH[rule].format(row=described, tokens=tokens, there=there.place))


_CLASH = {
    ROW_TWICE: "row {row} at tokens {tokens} is declared with the same use at {there}",
    ROW_IN_TWO_FILES: "row {row} at tokens {tokens} is declared for another CSV at {there}",
    POLICY_CONFLICT: "row {row} at tokens {tokens} is shared with {there}, which denies other kernels",
}


def _clash_rules(one: DeclaredRow, other: DeclaredRow) -> Iterator[Rule]:
    if not set(one.gpus) & set(other.gpus):
        return
    if one.csv != other.csv:
        yield ROW_IN_TWO_FILES
    if _computed(one.use) == _computed(other.use) or one.use.id == other.use.id:
        yield ROW_TWICE
    if _denied(one) != _denied(other):
        yield POLICY_CONFLICT


def _computed(use: Use) -> Use:
    """A use without the names of who has it."""
    return replace(use, deployment="", block="")


def _denied(declared: DeclaredRow) -> set[frozenset[tuple[str, object]]]:
    return {frozenset(deny.match.items()) for deny in declared.deny}


def _described(declared: DeclaredRow) -> str:
    return f"{declared.row.dims} {declared.use.recipe}"
