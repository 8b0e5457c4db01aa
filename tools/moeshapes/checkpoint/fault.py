"""What can be wrong with a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from moeshapes.findings import Finding
from moeshapes.rule import Rule, Severity

UNREADABLE_CHECKPOINT = Rule(
    "MOE541", "unreadable-checkpoint", Severity.ERROR,
    what="A checkpoint's index, config or shard cannot be read.",
    why="It is cut off, another file, or not there; weights from it would be anybody's guess.",
    fix="Take the file from the checkpoint again.",
)  # fmt: skip
SHARD_NAME = Rule(
    "MOE542", "shard-name", Severity.ERROR,
    what="A checkpoint's index names a shard by more than a file name.",
    why="An index must not lead out of its folder.",
    fix="Put the shards beside the index, and name them as plain `….safetensors` files.",
)  # fmt: skip
NO_SUCH_LAYER = Rule(
    "MOE543", "no-such-layer", Severity.ERROR,
    what="A checkpoint has no MoE layer, or more than one, under the name that is given.",
    why="Only one layer is read, and it must be certain which.",
    fix="Give the layer's whole name, as its tensors begin.",
)  # fmt: skip
MISSING_TENSOR = Rule(
    "MOE544", "missing-tensor", Severity.ERROR,
    what="A MoE layer of a checkpoint lacks tensors.",
    why="A layer with weights that are made up proves nothing.",
    fix="Take the checkpoint again, with all of its shards.",
)  # fmt: skip
TENSOR_FORM = Rule(
    "MOE545", "tensor-form", Severity.ERROR,
    what="A tensor of a checkpoint has a shape or type that does not fit the layer, or scales of no known kind.",
    why="Read in another form than it was written in, it would stand for other weights.",
    fix="Compare the tensor with the model's code; a form that is new must be added before it can be read.",
)  # fmt: skip
ROUTER_FACT = Rule(
    "MOE546", "router-fact", Severity.ERROR,
    what="A checkpoint's config.json lacks a fact that its router needs, or has it in a form that is not known.",
    why="Tokens would be routed as in no model.",
    fix="Take config.json from the checkpoint again, or compare it with the model's code.",
)  # fmt: skip


class CheckpointError(Exception):
    """A checkpoint that cannot be read. `findings` has all that is wrong with it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("; ".join(f"{finding.place}: {finding.message}" for finding in findings))
        self.findings = list(findings)
