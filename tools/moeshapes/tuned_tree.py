"""Tuned trees: where the tuned tables stand that a lookup is explained on, and reading them merged."""

from __future__ import annotations

from pathlib import Path

from moeshapes.family import AITER_CONFIGS, OWN_CONFIGS, TRITON, Family, read_family
from moeshapes.root import find_configs, is_shapes_root, name_from
from moeshapes.row import is_portable
from moeshapes.runtime.merged import MergedTable, merge
from moeshapes.runtime.version import Version
from moeshapes.table import read_table


def read_tuned_tree(path: Path, root: Path | None, version: Version | None = None) -> MergedTable | None:
    """The merged table of `read_tuned_family`."""
    family = read_tuned_family(path, root)
    return merge(family.tuned.values(), version) if family else None


def read_tuned_family(path: Path, root: Path | None) -> Family | None:
    """AITER's tables of a repository of shapes, an AITER checkout, its configs, or one file alone.

    One file stands alone, as AITER_CONFIG_FMOE makes it. None where there are no such tables.
    """
    if path.is_file():
        return None if is_portable(path.name) else _alone(path, root)
    folder, kind = (path / OWN_CONFIGS, OWN_CONFIGS) if is_shapes_root(path) else (find_configs(path), AITER_CONFIGS)
    return read_family(folder, kind, lambda table: name_from(root, table)) if folder else None


def read_portable_family(path: Path, root: Path | None) -> Family | None:
    """Those of the portable kernels, of a repository of shapes or one file alone; None where there are none."""
    if path.is_file():
        return _alone(path, root) if is_portable(path.name) else None
    is_own = is_shapes_root(path)
    return read_family(path / TRITON, TRITON, lambda table: name_from(root, table)) if is_own else None


def _alone(path: Path, root: Path | None) -> Family:
    return Family({path.name: read_table(path, name_from(root, path))})
