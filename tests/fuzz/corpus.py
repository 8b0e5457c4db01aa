"""The corpus: for each target the project's own examples, and every input that once broke something."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent.parent
CORPUS = Path(__file__).parent / "corpus"
_EXAMPLES = {
    "yaml": ("examples/yaml/**/*.yaml", "../models/*.yaml", "../shapes/*/*.yaml", "../policy.yaml"),
    "table": ("examples/tables/**/*.csv",),
    "config": ("examples/configs/*.json",),
    "profile": ("examples/profiles/**/*.csv",),
}


def inputs(target: str) -> dict[str, bytes]:
    """The target's corpus, by where each input stands."""
    own = sorted(path for path in (CORPUS / target).iterdir())
    examples = sorted(path for pattern in _EXAMPLES.get(target, ()) for path in TESTS.glob(pattern))
    return {str(path.relative_to(TESTS)): path.read_bytes() for path in [*own, *examples]}
