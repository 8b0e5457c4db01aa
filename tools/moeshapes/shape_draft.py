"""Drafts: shape files for rows that somebody asks for, checked by the reader that will read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from moeshapes.device import has_aiter
from moeshapes.dispatch import Caller, bucket_of, is_reachable_bucket
from moeshapes.document import parse_document
from moeshapes.expand import Declarations, expand
from moeshapes.findings import Finding, Place
from moeshapes.model import Model
from moeshapes.origin import Origin, find_origin
from moeshapes.reach import setting_that_reaches
from moeshapes.recipe import Recipe, recipe_of
from moeshapes.row import PORTABLE_PREFIX, UntunedRow, is_portable
from moeshapes.rule import Rule, Severity
from moeshapes.shape import Gpu, read_shape
from moeshapes.yaml_text import shape_text, tokens_value

NO_ORIGIN = Rule(
    "MOE609", "no-origin", Severity.ERROR,
    what="Rows to import follow from no model of this repository.",
    why="A shape file says how a model is served; without the model it cannot be written.",
    fix="Import the model's config.json first, or write the shape by hand with an override and a note.",
)  # fmt: skip
IMPORTED_UNREACHABLE = Rule(
    "MOE610", "imported-unreachable", Severity.WARNING,
    what="An imported row is for a token count that no call looks up.",
    why="Tuning it costs time, and its row is never used.",
    fix="Remove the count from the shape file, or keep it under `unreachable` with the reason.",
)  # fmt: skip

_GPUS = {True: Gpu("gfx942", 304), False: Gpu("gfx950", 256)}
"""What is supposed of a row whose table does not say its GPU, by whether its fp8 is fnuz."""


@dataclass(frozen=True)
class Wanted:
    """A row to declare: its GPU if known, where it is asked for, how its table respells q_type, how often it missed."""

    row: UntunedRow
    device: tuple[str, int] | None
    place: Place
    q_type: str = ""
    count: int = 0


@dataclass(frozen=True)
class _Group:
    """What rows of one shape file share. Pads and settings are pairs, so that groups can be compared."""

    model: str
    tp: int
    ep: int
    pad: tuple[tuple[str, int], ...]
    gpu: Gpu
    recipe: Recipe
    doweight_stage1: bool


def draft_shapes(
    wanted: Sequence[Wanted], csv: str, comment: str, declarations: Declarations
) -> tuple[dict[str, str], list[Finding]]:
    """Shape files, by path, for the rows that no shape declares yet for `csv` (empty: any), and what is wrong.

    A file is only given where this repository's own reader takes it and derives those rows from it.
    """
    findings: list[Finding] = []
    groups: dict[_Group, list[tuple[Wanted, Origin]]] = defaultdict(list)
    for item in _undeclared(wanted, csv, declarations):
        origin, recipe = find_origin(item.row, declarations.models), _recipe(item.row)
        if origin is None or recipe is None:
            findings.append(_no_origin(item, recipe))
        else:
            groups[_group(item, origin, recipe)].append((item, origin))
            findings += _unreachable(item)
    files: dict[str, str] = {}
    taken = {shape.deployment for shape in declarations.shapes}
    for group, items in groups.items():
        name = _free_name(group, taken)
        taken.add(name)
        text = _text(group, items, csv or _csv_for(group), comment, declarations)
        path = f"shapes/{name}.yaml"
        wrong = _faults(path, name, text, items, declarations.models)
        findings += wrong
        if not wrong:
            files[path] = text
    return files, _merged(findings)


def _undeclared(wanted: Iterable[Wanted], csv: str, declarations: Declarations) -> Iterator[Wanted]:
    """Those not declared for the backend that is meant, each row and GPU once."""
    declared = {(row.row, row.csv) for row in declarations.rows}
    by_key = {(row.row, (gpu.gfx, gpu.cu_num), row.is_portable) for row in declarations.rows for gpu in row.gpus}
    seen = set()
    for item in wanted:
        device = item.device
        known = (item.row, device, not has_aiter(device[0])) in by_key if device else (item.row, csv) in declared
        if not known and (item.row, item.device) not in seen:
            seen.add((item.row, item.device))
            yield item


def _csv_for(group: _Group) -> str:
    prefix = "" if has_aiter(group.gpu.gfx) else PORTABLE_PREFIX
    return f"{prefix}{group.model.replace('.', '_')}_untuned_fmoe.csv"


def _recipe(row: UntunedRow) -> Recipe | None:
    plain = row.dtype == "torch.bfloat16" and row.use_g1u1 == 1
    return recipe_of(row.q_dtype_a, row.q_dtype_w, row.q_type) if plain else None


def _group(item: Wanted, origin: Origin, recipe: Recipe) -> _Group:
    fnuz = "fnuz" in item.row.q_dtype_a + item.row.q_dtype_w
    gpu = Gpu(*item.device) if item.device else _GPUS[fnuz]
    pad = tuple(sorted(origin.pad.items()))
    return _Group(origin.model, origin.tp, origin.ep, pad, gpu, recipe, bool(item.row.doweight_stage1))


def _free_name(group: _Group, taken: set[str]) -> str:
    parts = [f"ep{group.ep}" if group.ep > 1 else f"tp{group.tp}", group.recipe.name.replace("_", "-")]
    parts += ["padded"] if group.pad else []
    name = f"{group.model}/{'-'.join(parts)}"
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(other for other in numbered if other not in taken)


def _text(
    group: _Group, items: Sequence[tuple[Wanted, Origin]], csv: str, comment: str, declarations: Declarations
) -> str:
    blocks: dict[tuple[object, ...], list[tuple[Wanted, Origin]]] = defaultdict(list)
    for item, origin in items:
        override = tuple(origin.override.items())
        blocks[origin.block, origin.fused, override, item.q_type].append((item, origin))
    keys: dict[str, object] = {"model": group.model, "tp": group.tp}
    keys |= {"ep": group.ep} if group.ep > 1 else {}
    keys |= {"csv": csv, "gpus": [{"gfx": group.gpu.gfx, "cu_num": group.gpu.cu_num}], "recipe": group.recipe.name}
    keys |= {} if is_portable(csv) else _serving(group, items, declarations.models)
    keys |= {"pad": dict(group.pad)} if group.pad else {}
    keys |= {"doweight_stage1": True} if group.doweight_stage1 else {}
    return shape_text(_comments(items, comment), keys, [_entry(same, declarations.models) for same in blocks.values()])


def _serving(group: _Group, items: Sequence[tuple[Wanted, Origin]], models: Mapping[str, Model]) -> dict[str, object]:
    """The gate layout and environment without which no call would ask AITER for these rows."""
    activation = models[group.model].blocks[items[0][1].block].activation
    caller = Caller(group.gpu.gfx, group.recipe, activation, "separated", {})
    buckets = [item.row.token for item, _ in items if is_reachable_bucket(item.row.token)]
    gate_mode, env = setting_that_reaches(caller, buckets) or ("separated", {})
    found: dict[str, object] = {"gate_mode": gate_mode} if gate_mode != "separated" else {}
    return found | ({"env": {name: int(value) for name, value in env.items()}} if env else {})


def _comments(items: Sequence[tuple[Wanted, Origin]], comment: str) -> Iterator[str]:
    yield comment
    if any(item.device is None for item, _ in items):
        yield "The table does not say the GPU, nor how it is served: compare gpus, gate_mode, env and pad with serving."
    else:
        yield "A key does not say how it is served: compare gate_mode, env and pad with serving."
    also = sorted({model for _, origin in items for model in origin.also})
    if also:
        yield f"The same dims: {', '.join(also)}."
    counted = [f"{item.count} at {item.row.token}" for item, _ in items if item.count]
    if counted:
        yield f"Misses at token: {', '.join(counted)}."


def _entry(items: Sequence[tuple[Wanted, Origin]], models: Mapping[str, Model]) -> dict[str, object]:
    first, origin = items[0]
    tokens = sorted(item.row.token for item, _ in items)
    entry: dict[str, object] = {"block": origin.block}
    if models[origin.model].blocks[origin.block].n_shared_experts:
        entry["shared_experts"] = "fused" if origin.fused else "separate"
    entry["tokens"] = tokens_value(tokens)
    unreachable = [token for token in tokens if not is_reachable_bucket(token)]
    if unreachable:
        entry["unreachable"] = {"tokens": unreachable, "note": "imported; no call looks them up"}
    override: dict[str, object] = dict(origin.override)
    override |= {"q_type": first.q_type.removeprefix("QuantType.")} if first.q_type else {}
    if override:
        entry["override"] = {**override, "note": "as imported; it does not follow from the model"}
    return entry


def _faults(
    path: str, name: str, text: str, items: Sequence[tuple[Wanted, Origin]], models: Mapping[str, Model]
) -> list[Finding]:
    """What the reader finds wrong with a draft, or that it would declare other rows than were asked for."""
    document, findings = parse_document(text.encode(), path)
    if document is None:
        return findings
    shape, wrong = read_shape(name, document)
    declared, clashes = expand(models, [shape])
    findings = [*findings, *wrong, *clashes]
    if not findings and {row.row for row in declared.rows} != {item.row for item, _ in items}:
        place = items[0][0].place
        message = f"{path} would declare other rows than {_described(items[0][0].row)}"
        return [Finding(NO_ORIGIN, place, message, "Write the shape by hand.")]
    return findings


def _no_origin(item: Wanted, recipe: Recipe | None) -> Finding:
    if recipe is None:
        kind = f"{item.row.dtype}, {item.row.q_dtype_a}, {item.row.q_dtype_w}, {item.row.q_type}"
        return Finding(NO_ORIGIN, item.place, f"no recipe has {kind} with use_g1u1 {item.row.use_g1u1}")
    return Finding(NO_ORIGIN, item.place, f"no model here gives {_described(item.row)}")


def _unreachable(item: Wanted) -> Iterator[Finding]:
    token = item.row.token
    if not is_reachable_bucket(token):
        message = f"no call looks up {token} tokens: calls of {token} tokens look up {bucket_of(token)}"
        yield Finding(IMPORTED_UNREACHABLE, item.place, message)


def _described(row: UntunedRow) -> str:
    return f"{row.dims} {row.act_type.partition('.')[2]}"


def _merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that say the same of several lines, once, at the first."""
    first: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        first.setdefault((finding.rule.id, finding.message), finding)
    return list(first.values())
