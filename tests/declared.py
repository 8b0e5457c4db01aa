"""Small repositories of shapes, written by tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moeshapes.document import Document, parse_document
from moeshapes.expand import Declarations
from moeshapes.findings import Finding
from moeshapes.repository import load_declarations

MODEL = """\
name: Demo
checkpoint: example/demo
blocks:
  target: {hidden_size: 5120, moe_intermediate_size: 2304, n_routed_experts: 384, num_experts_per_tok: 6,
           n_shared_experts: 1, activation: silu, swiglu_limit: 10}
"""
SHAPE = """\
model: demo
tp: 4
csv: demo_untuned_fmoe.csv
gpus: [{gfx: gfx950, cu_num: 256}]
recipe: fp8_token
moe:
  - {block: target, tokens: [1, 32], shared_experts: separate}
"""


def write_repository(root: Path, shapes: Mapping[str, str], models: Mapping[str, str] | None = None) -> Path:
    """models/demo.yaml and the given shapes (`demo/tp4` is shapes/demo/tp4.yaml) below `root`."""
    files = {f"models/{name}.yaml": text for name, text in (models or {"demo": MODEL}).items()}
    files |= {f"shapes/{name}.yaml": text for name, text in shapes.items()}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def declared(root: Path, **shapes: str) -> tuple[Declarations, list[Finding]]:
    """What shapes/demo/NAME.yaml declare, and what is wrong with them."""
    return load_declarations(write_repository(root, {f"demo/{name}": text for name, text in shapes.items()}))


def sound_document(text: str) -> Document:
    document, findings = parse_document(text.encode(), "demo.yaml")
    assert document
    assert not findings
    return document
