"""Deployments: a block of a shape file as one GPU serves it, whose calls of any token count can be explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from moeshapes.dispatch import Caller
from moeshapes.expand import Declarations, DeclaredRow
from moeshapes.recipe import Recipe
from moeshapes.row import Key
from moeshapes.runtime.call import RuntimeCall, call_of_key, call_of_use
from moeshapes.runtime.version import Version
from moeshapes.shape import Entry, Gpu, Shape


@dataclass(frozen=True)
class Deployment:
    """One use of one entry of a shape on one GPU. `declared` is any of its rows: they differ in their token alone."""

    shape: Shape
    entry: Entry
    gpu: Gpu
    declared: DeclaredRow

    @property
    def name(self) -> str:
        """`glm-5.2/tp4#target 6144/512/257/9 on gfx950/256`."""
        row = self.declared.row
        return f"{self.declared.use.id} {row.dims} on {self.gpu.gfx}/{self.gpu.cu_num}"

    @property
    def key(self) -> Key:
        """The key of one of its buckets, that of `declared`."""
        return Key(self.gpu.gfx, self.gpu.cu_num, self.declared.row)

    @property
    def is_portable(self) -> bool:
        """Whether the portable kernels serve it, and not AITER."""
        return self.declared.is_portable

    @property
    def recipe(self) -> Recipe:
        return self.shape.recipe

    @property
    def caller(self) -> Caller:
        use = self.declared.use
        return Caller(self.gpu.gfx, self.recipe, use.activation, use.gate_mode, use.env)

    def call(self, tokens: int, env: Mapping[str, str] | None = None, version: Version | None = None) -> RuntimeCall:
        """The call of that many tokens; `env` adds to what the shape sets. With ep, serving passes an expert mask.

        A call of the portable kernels has its key's own formats, whatever the environment.
        """
        if self.is_portable:
            return call_of_key(self.key, tokens)
        call = call_of_use(self.key, self.declared.use, tokens, expert_mask=self.shape.ep > 1)
        return replace(call, env={**call.env, **(env or {})}, version=version or Version())


def deployments(declarations: Declarations) -> Iterator[Deployment]:
    """Everything that is declared, in the order of the shapes: each entry, use and GPU once."""
    entries = {
        place: (number, shape, entry)
        for number, shape in enumerate(declarations.shapes)
        for entry in shape.entries
        for place in entry.tokens.values()
    }
    found: dict[tuple[int, int, Gpu, str], Deployment] = {}
    for declared in declarations.rows:
        number, shape, entry = entries[declared.place]
        for gpu in declared.gpus:
            found.setdefault((number, entry.index, gpu, declared.use.id), Deployment(shape, entry, gpu, declared))
    return (found[key] for key in sorted(found))
