"""From a model's widths and counts to a table row's: parallelism, shared-expert fusion, padding and overrides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moeshapes.findings import Finding, Place
from moeshapes.model import Block
from moeshapes.recipe import Format, QType, Recipe
from moeshapes.rule import Rule, Severity
from moeshapes.shape import Entry, Shape

DOES_NOT_DIVIDE = Rule(
    "MOE040", "does-not-divide", Severity.ERROR,
    what="The ranks do not divide what they are to share, and nothing says how it is padded.",
    why="Ranks would differ in width, and serving fails to load the weights or pads in a way this row does not know.",
    fix="Choose ranks that divide it, or declare the padding.",
)  # fmt: skip
WIDTH = Rule(
    "MOE041", "width", Severity.ERROR,
    what="A dim of the row is no multiple of what kernels of its recipe can take.",
    why="No kernel runs it, or one runs it and leaves out or misreads the remainder.",
    fix="Declare the padding that serving applies, or choose other ranks.",
)  # fmt: skip
NO_SHARED_EXPERT = Rule(
    "MOE042", "no-shared-expert", Severity.ERROR,
    what="Shared experts are said to be fused, but the model's block has none.",
    why="The row would have one expert and one top-k slot that no call has.",
    fix="Remove `shared_experts: fused`, or correct the model's n_shared_experts.",
)  # fmt: skip
OVERRIDE_AND_PAD = Rule(
    "MOE043", "override-and-pad", Severity.ERROR,
    what="A dim is both padded and overridden.",
    why="An override is the row's own number, so the padding would be silently ignored.",
    fix="Keep one of the two.",
)  # fmt: skip
OVERRIDE_TOPK = Rule(
    "MOE044", "override-topk", Severity.ERROR,
    what="The row of an override would send a token to more experts than there are.",
    why="No router can do it.",
    fix="Correct the override.",
)  # fmt: skip
FUSION_UNSAID = Rule(
    "MOE047", "fusion-unsaid", Severity.INFO,
    what="The model's block has shared experts, and its entry does not say whether serving fuses them.",
    why="Fused, they are in the row's expert and topk, so calls look up another row than the one that is written.",
    fix="Write `shared_experts: fused` or `shared_experts: separate`.",
)  # fmt: skip

MAX_RANKS = 64
"""How far remedies look for ranks that fit."""


@dataclass(frozen=True)
class Geometry:
    """A row's dims in elements, its counts, and how many trailing elements of each dim are padding."""

    model_dim: int
    inter_dim: int
    expert: int
    topk: int
    hidden_pad: int
    intermediate_pad: int
    shared_experts: int


def geometry(shape: Shape, entry: Entry, block: Block) -> tuple[Geometry, list[Finding]]:
    """The geometry of an entry's rows, and all that is wrong with it; with findings, the geometry is of no use."""
    shared = block.n_shared_experts if entry.shared_experts_fused else 0
    ranks = shape.tp if shape.ep == 1 else 1
    # The widest rank's share, where padding makes up for a remainder.
    inter_dim, intermediate_pad = _dim("inter_dim", -(-block.moe_intermediate_size // ranks), shape, entry)
    model_dim, hidden_pad = _dim("model_dim", block.expert_hidden_size, shape, entry)
    found = Geometry(
        model_dim=model_dim,
        inter_dim=inter_dim,
        expert=entry.override.get("expert", block.n_routed_experts // shape.ep + shared),
        topk=entry.override.get("topk", block.num_experts_per_tok + shared),
        hidden_pad=hidden_pad,
        intermediate_pad=intermediate_pad,
        shared_experts=shared,
    )
    findings = list(_fusion(shape, entry, block))
    if shape.is_sound("tp", "ep", "pad") and "override" not in entry.faulty:
        divided = list(_division(shape, entry, block, ranks))
        judged = shape.is_sound("recipe") and not divided
        findings += [*divided, *_overrides(shape, entry, found)]
        findings += _widths(shape, entry, block, found) if judged else ()
    return found, findings


def _dim(name: str, logical: int, shape: Shape, entry: Entry) -> tuple[int, int]:
    """A dim as the row has it, and how much of it is padding."""
    if name in entry.override:
        return entry.override[name], 0
    padded = _padded(logical, shape.pad.get(name, 1))
    return padded, padded - logical


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _division(shape: Shape, entry: Entry, block: Block, ranks: int) -> Iterator[Finding]:
    width, experts = block.moe_intermediate_size, block.n_routed_experts
    if width % ranks and "inter_dim" not in shape.pad and "inter_dim" not in entry.override:
        message = f"tp {ranks} does not divide moe_intermediate_size {width} of block `{entry.block}`"
        fitting = _divisors(width, ranks)
        remedy = f"Choose tp {fitting}, share experts with ep, or declare `pad: {{inter_dim: N}}` as serving pads."
        yield Finding(DOES_NOT_DIVIDE, shape.document.place("tp"), message, remedy)
    if experts % shape.ep and "expert" not in entry.override:
        message = f"ep {shape.ep} does not divide the {experts} experts of block `{entry.block}`"
        remedy = f"Choose ep {_divisors(experts, shape.ep)}, or give `expert` as an override with a note."
        yield Finding(DOES_NOT_DIVIDE, shape.document.place("ep"), message, remedy)


def _divisors(number: int, near: int) -> str:
    """The two divisors of a number around another number: `4 or 8`."""
    below = next(n for n in range(near, 0, -1) if number % n == 0)
    above = next((n for n in range(near, 2 * near + 1) if number % n == 0), below)
    return f"{below} or {above}" if above != below else f"{below}"


def _fusion(shape: Shape, entry: Entry, block: Block) -> Iterator[Finding]:
    if entry.shared_experts_fused and not block.n_shared_experts:
        place = shape.document.place("moe", entry.index, "shared_experts")
        yield Finding(NO_SHARED_EXPERT, place, f"block `{entry.block}` of `{shape.model}` has no shared expert to fuse")


def unsaid_fusion(shape: Shape, entry: Entry, block: Block, found: Geometry) -> Iterator[Finding]:
    """What an entry leaves open of the model's shared experts, unless another of the same block says it is fused."""
    said = any(other.shared_experts for other in shape.entries if other.block == entry.block)
    if block.n_shared_experts and not said and not {"expert", "topk"} <= entry.override.keys():
        experts = f"{block.n_shared_experts} shared {'expert' if block.n_shared_experts == 1 else 'experts'}"
        message = f"{experts} of block `{entry.block}` kept separate: rows have {found.expert}/{found.topk}"
        expert, topk = (
            entry.override.get(name, getattr(found, name) + block.n_shared_experts) for name in ("expert", "topk")
        )
        remedy = f"Write `shared_experts: fused` for {expert}/{topk} if serving fuses, else `shared_experts: separate`."
        yield Finding(FUSION_UNSAID, shape.document.place("moe", entry.index, "block"), message, remedy)


def _overrides(shape: Shape, entry: Entry, found: Geometry) -> Iterator[Finding]:
    for dim in ("model_dim", "inter_dim"):
        if dim in entry.override and dim in shape.pad:
            place = shape.document.key_place("moe", entry.index, "override", dim)
            padded_at = shape.document.place("pad", dim).line
            yield Finding(OVERRIDE_AND_PAD, place, f"`{dim}` is overridden here and padded at line {padded_at}")
    if found.topk > found.expert and entry.override.keys() & {"topk", "expert"}:
        place = shape.document.place("moe", entry.index, "override")
        yield Finding(OVERRIDE_TOPK, place, f"topk {found.topk} of {found.expert} experts")


@dataclass(frozen=True)
class _WidthRule:
    """What the dims must be multiples of, and why."""

    model_dim: int
    inter_dim: int
    reason: str


_CK_TILE = _WidthRule(64, 64, "the narrowest tile of CK's kernels is 64 wide")
_A16W = _WidthRule(128, 64, "stage 2 for 16-bit activations takes K in steps of 64 and N in steps of 128")
_MX = _WidthRule(128, 128, "FlyDSL's stage 2 takes K in steps of 128 and drops a remainder")
_BLOCK_SCALE = _WidthRule(128, 128, "one scale covers a block of 128")


def _width_rule(recipe: Recipe, portable: bool) -> _WidthRule:
    """Sources: contract 4.8, and the dims of every row that AITER publishes. Portable kernels mask their tiles."""
    if portable:
        block = max(recipe.block, 1)
        return _WidthRule(block, block, f"one scale covers a block of {block}")
    if recipe.q_type is QType.PER_1X128:
        return _BLOCK_SCALE
    if recipe.q_type is QType.PER_1X32:
        return _A16W if recipe.a is Format.BF16 else _MX
    return _CK_TILE


def _widths(shape: Shape, entry: Entry, block: Block, found: Geometry) -> Iterator[Finding]:
    rule = _width_rule(shape.recipe, shape.is_portable)
    for dim, size in (("model_dim", found.model_dim), ("inter_dim", found.inter_dim)):
        multiple: int = getattr(rule, dim)
        if size % multiple:
            message = (
                f"{dim} {size} % {multiple} = {size % multiple} under {shape.recipe.name}"
                f" (block `{entry.block}`: model_dim {found.model_dim}, inter_dim {found.inter_dim}): {rule.reason}"
            )
            yield Finding(WIDTH, _dim_place(dim, shape, entry), message, _width_remedy(dim, size, multiple, block))


def _dim_place(dim: str, shape: Shape, entry: Entry) -> Place:
    """Where the dim is decided."""
    if dim in entry.override:
        return shape.document.place("moe", entry.index, "override", dim)
    if dim in shape.pad:
        return shape.document.place("pad", dim)
    return shape.document.place("tp") if dim == "inter_dim" else shape.document.place("model")


def _width_remedy(dim: str, size: int, multiple: int, block: Block) -> str:
    pad = f"declare `pad: {{{dim}: {multiple}}}` ({size} becomes {_padded(size, multiple)}) if serving pads so"
    width = block.moe_intermediate_size
    fitting = [str(ranks) for ranks in range(1, MAX_RANKS + 1) if width % (ranks * multiple) == 0]
    if dim == "model_dim" or not fitting:
        return f"Correct the size, or {pad}."
    return f"Choose tp {', '.join(fitting)}, share experts with ep, or {pad}."
