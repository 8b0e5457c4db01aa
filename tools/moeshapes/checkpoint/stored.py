"""A MoE layer as a checkpoint stores it: all tensors that it needs, in which form, of shapes that agree. No weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat

from moeshapes.checkpoint.fault import MISSING_TENSOR, TENSOR_FORM, CheckpointError
from moeshapes.checkpoint.form import PLAIN, Form, described, form_of
from moeshapes.checkpoint.index import Entry, Index, entries_of, listed
from moeshapes.checkpoint.layouts import DOWN, GATE, UP, Layout, find_layer, stored_names
from moeshapes.checkpoint.routing import Routing, routing_of
from moeshapes.findings import Finding, Place


@dataclass(frozen=True)
class Matrix:
    """A weight matrix: of `expert` where the tensors' first axis counts experts."""

    codes: Entry
    scales: Entry | None
    form: Form
    expert: int | None = None


@dataclass(frozen=True)
class Expert:
    """An expert's matrices. Where gate and up share a tensor, both are that tensor, of twice the rows."""

    gate: Matrix
    up: Matrix
    down: Matrix


@dataclass(frozen=True)
class StoredLayer:
    """`hidden` is the width that the router reads, `width` that which experts read and write; `inter` and
    `shared_inter` are a routed and the shared experts' intermediate widths before TP, 0 without shared ones.

    `tensors` has the norm and the router's, by the layout's field names, without those that the checkpoint has not.
    """

    index: Index
    prefix: str
    layout: Layout
    routing: Routing
    experts: tuple[Expert, ...]
    shared: Expert | None
    hidden: int
    width: int
    inter: int
    shared_inter: int
    tensors: Mapping[str, Entry]

    @property
    def has_bias(self) -> bool:
        return "bias1" in self.tensors

    @property
    def shared_experts(self) -> int:
        """How many experts of the routed ones' width the shared expert is worth; 0 where that is no whole number."""
        return 0 if self.shared_inter % self.inter else self.shared_inter // self.inter

    @property
    def shards(self) -> frozenset[str]:
        every = [*self.experts, *([self.shared] if self.shared else [])]
        matrices = [matrix for expert in every for matrix in (expert.gate, expert.up, expert.down)]
        entries = [entry for matrix in matrices for entry in (matrix.codes, matrix.scales) if entry]
        return frozenset(entry.shard for entry in (*entries, *self.tensors.values()))


def stored_layer(index: Index, layer: str) -> StoredLayer:
    """The layer of that name or end of a name. Raises CheckpointError with all that is wrong with it."""
    prefix, layout = find_layer(index, layer)
    survey = _Survey(index, prefix, layout)
    found = survey.layer()
    if found is None:
        raise CheckpointError(survey.findings)
    return found


_TENSORS = ("norm", "router", "router_bias", "correction", "table", "shared_gate", "latent")
_NEEDED = ("norm", "router")


@dataclass
class _Survey:
    """Collects a layer's tensors, with all that is wrong with them."""

    index: Index
    prefix: str
    layout: Layout
    findings: list[Finding] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)

    def layer(self) -> StoredLayer | None:
        """The layer, None where there are findings."""
        names, layout = self._tensor_names(), self.layout
        self._look_up(names.values())
        router = self.entries.get(names["router"])
        if router is None:  # a shard that cannot be read: its name is how the layer was found
            return None
        if len(router.shape) != 2 or 0 in router.shape:
            message = f"`{router.name}`: {described(router)}, expected a row an expert"
            self.findings.append(Finding(TENSOR_FORM, _place(self.index, router), message))
            return None
        count, hidden = router.shape
        bases = [self._bases(expert) for expert in range(count)]
        shared_base = next((base for base in self._shared_bases() if any(map(self._stored, base))), None)
        of_all = [*bases, *([shared_base] if shared_base else [])]
        self._report_missing([f"{self.prefix}.{name}" for base in of_all for name in base if not self._stored(name)])
        self._look_up(name for base in of_all for name in self._names(base))
        experts = [e for e in map(self._expert, bases, range(count) if layout.stacked else repeat(None)) if e]
        shared = self._expert(shared_base, None) if shared_base else None
        routing, wrong = routing_of(self.index, count)
        self.findings += wrong
        if routing is None or len(experts) < count or (shared_base and shared is None):
            return None
        return self._checked(names, routing, experts, shared, hidden)

    def _checked(
        self, names: Mapping[str, str], routing: Routing, experts: list[Expert], shared: Expert | None, hidden: int
    ) -> StoredLayer | None:
        """The layer, None where its tensors' shapes do not agree."""
        down = experts[0].down.form
        layer = StoredLayer(
            index=self.index,
            prefix=self.prefix,
            layout=self.layout,
            routing=routing,
            experts=tuple(experts),
            shared=shared,
            hidden=hidden,
            width=down.rows,
            inter=down.k,
            shared_inter=shared.down.form.k if shared else 0,
            tensors={field: self.entries[name] for field, name in names.items() if name in self.entries},
        )
        self._report_missing([name for field, name in names.items() if field in _NEEDED and name not in self.entries])
        self.findings += _misshapen(layer)
        return None if self.findings else layer

    def _tensor_names(self) -> dict[str, str]:
        """The full names of the tensors that are not matrices of experts, by the layout's field names."""
        layout = self.layout
        named = {name: getattr(layout, name) for name in _TENSORS}
        named["bias1"], named["bias2"] = layout.biases
        return {field: f"{self.prefix}.{name}" for field, name in named.items() if name}

    def _bases(self, expert: int) -> tuple[str, str, str]:
        """The projections' names below the layer's: gate, up, down."""
        gate, up, down = (self.layout.expert(expert, projection) for projection in (GATE, UP, DOWN))
        return gate, up, down

    def _shared_bases(self) -> Iterator[tuple[str, str, str]]:
        for pattern in self.layout.shared:
            gate, up, down = (pattern.format(projection=name) for name in self.layout.shared_projections)
            yield gate, up, down

    def _names(self, bases: tuple[str, str, str]) -> Iterator[str]:
        for base in bases:
            yield from filter(None, stored_names(self.index, f"{self.prefix}.{base}"))

    def _look_up(self, names: Iterable[str]) -> None:
        entries, findings = entries_of(self.index, names)
        self.entries |= entries
        self.findings += findings

    def _report_missing(self, names: list[str]) -> None:
        # A shard that cannot be read, or lacks what the index says, has its own finding.
        absent = [name for name in dict.fromkeys(names) if name not in self.index.shard_of]
        if absent:
            message = f"the index lacks {listed(absent)} of `{self.prefix}`"
            self.findings.append(Finding(MISSING_TENSOR, self.index.place, message))

    def _stored(self, base: str) -> bool:
        return bool(stored_names(self.index, f"{self.prefix}.{base}")[0])

    def _expert(self, bases: tuple[str, str, str], number: int | None) -> Expert | None:
        gate, up, down = (self._matrix(base, number) for base in bases)
        return Expert(gate, up, down) if gate and up and down else None

    def _matrix(self, base: str, number: int | None) -> Matrix | None:
        """A projection's matrix; None, with a finding once a tensor, where it is in no known form."""
        code_name, scale_name = stored_names(self.index, f"{self.prefix}.{base}")
        codes, scales = self.entries.get(code_name), self.entries.get(scale_name)
        if codes is None or (scale_name and scales is None):
            return None
        form = form_of(codes, scales, number is not None)
        if isinstance(form, Form):
            return Matrix(codes, scales, form, number)
        finding = Finding(TENSOR_FORM, _place(self.index, codes), f"`{codes.name}`: {form}")
        if finding not in self.findings:
            self.findings.append(finding)
        return None


def _place(index: Index, entry: Entry) -> Place:
    return Place(str(index.path(entry.shard)))


def _misshapen(layer: StoredLayer) -> Iterator[Finding]:
    """Tensors whose shapes are not those that the router and the first expert imply; many of a kind as one finding."""
    wrong: dict[str, list[Entry]] = {}
    for entry, why in [*_misshapen_matrices(layer), *_misshapen_tensors(layer)]:
        wrong.setdefault(why, []).append(entry)
    for why, entries in wrong.items():
        unique = list(dict.fromkeys(entries))
        message = f"{listed([entry.name for entry in unique])}: {described(unique[0])}, expected {why}"
        yield Finding(TENSOR_FORM, _place(layer.index, unique[0]), message)


def _misshapen_matrices(layer: StoredLayer) -> Iterator[tuple[Entry, str]]:
    together = 2 if layer.layout.stacked else 1
    shared = [(layer.shared, layer.shared_inter, 1, layer.hidden)] if layer.shared else []
    for expert, inter, halves, width in [*((e, layer.inter, together, layer.width) for e in layer.experts), *shared]:
        for matrix, rows, k in (
            (expert.gate, inter * halves, width),
            (expert.up, inter * halves, width),
            (expert.down, width, inter),
        ):
            if (matrix.form.rows, matrix.form.k) != (rows, k):
                yield matrix.codes, f"{rows} x {k} elements"
        for matrix in (expert.gate, expert.down):
            if matrix.expert is not None and matrix.codes.shape[0] != len(layer.experts):
                yield matrix.codes, f"{len(layer.experts)} experts"


def _misshapen_tensors(layer: StoredLayer) -> Iterator[tuple[Entry, str]]:
    experts = len(layer.experts)
    shapes: Mapping[str, tuple[int, ...]] = {
        "norm": (layer.hidden,),
        "router": (experts, layer.hidden),
        "router_bias": (experts,),
        "correction": (experts,),
        "shared_gate": (1, layer.hidden),
        "latent": (layer.width, layer.hidden),
        "bias1": (experts, 2 * layer.inter),
        "bias2": (experts, layer.width),
    }
    for name, shape in shapes.items():
        entry = layer.tensors.get(name)
        if entry is not None and (entry.shape != shape or entry.dtype not in PLAIN):
            yield entry, f"floats {list(shape)}"
    table = layer.tensors.get("table")
    if table is not None and (len(table.shape) != 2 or 0 in table.shape or not table.dtype.startswith("I")):
        yield table, "whole numbers, one row a token of the vocabulary"
    if "latent" not in layer.tensors and layer.width != layer.hidden:
        yield layer.tensors["router"], f"[{experts}, {layer.width}]: experts are that wide"
