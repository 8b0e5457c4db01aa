"""The AITER that is installed, without importing it: an import asks the GPU, reads the environment and may compile."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "aiter"
UNKNOWN = "unknown"
_DISTRIBUTION = "amd-aiter"
_COMMIT_IN_VERSION = re.compile(r"\+g(?P<commit>[0-9a-f]{7,40})\b")


def package_folder() -> Path | None:
    """The folder of the package, None where there is none: another package on the index has its name."""
    try:
        spec = find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    folders = (spec.submodule_search_locations or []) if spec else []
    return next((Path(folder) for folder in folders if (Path(folder) / "fused_moe.py").is_file()), None)


def aiter_version() -> str:
    """The commit of a checkout or of a build that tells it, else the build's version; empty without AITER.

    `unknown` where neither is told.
    """
    folder = package_folder()
    if folder is None:
        return ""
    return _commit_of_checkout(folder.parent) or _version_of_build() or UNKNOWN


def _commit_of_checkout(top: Path) -> str:
    """Only where the repository is AITER's own: an environment may lie within another one."""
    from moeshapes.git import GitError, open_git  # workers do without

    try:
        git = open_git(top)
        return "" if git.prefix else git.commit("HEAD")
    except GitError:
        return ""


def _version_of_build() -> str:
    try:
        version = metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ""
    told = _COMMIT_IN_VERSION.search(version)
    return told["commit"] if told else version
