"""The root of a repository of shapes or of an AITER checkout, and what a file is called as seen from it."""

from __future__ import annotations

from pathlib import Path


def is_shapes_root(directory: Path) -> bool:
    return (directory / "models").is_dir() and (directory / "shapes").is_dir()


def is_aiter_root(directory: Path) -> bool:
    return (directory / "aiter" / "configs").is_dir()


def find_shapes_root(start: Path) -> Path | None:
    """The nearest directory at or above `start` that holds models/ and shapes/; None where there is none."""
    return next((d for d in (start, *start.parents) if is_shapes_root(d)), None)


def find_tables_root(start: Path) -> Path | None:
    """The nearest directory at or above `start` that is the root of shapes or of an AITER checkout."""
    return next((d for d in (start, *start.parents) if is_shapes_root(d) or is_aiter_root(d)), None)


def name_from(root: Path | None, path: Path) -> str:
    """A file's path below `root` where it is inside it, else the path as given."""
    absolute = path.absolute()
    return absolute.relative_to(root).as_posix() if root and absolute.is_relative_to(root) else str(path)


def find_configs(directory: Path) -> Path | None:
    """AITER's aiter/configs: below a checkout, or the directory itself where it looks like that; None elsewhere."""
    if is_aiter_root(directory):
        return directory / "aiter" / "configs"
    general = any((directory / name).is_file() for name in ("tuned_fmoe.csv", "untuned_fmoe.csv"))
    return directory if general or (directory / "model_configs").is_dir() else None
