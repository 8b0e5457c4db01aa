"""Where things stand in a repository of shapes, and reading all its declarations."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from moeshapes.document import Document, load_document, parse_document
from moeshapes.expand import Declarations, expand
from moeshapes.family import OWN_CONFIGS, TRITON
from moeshapes.findings import Finding, Place
from moeshapes.model import Model, read_model
from moeshapes.row import is_portable
from moeshapes.rule import Rule, Severity
from moeshapes.shape import Shape, read_shape

MODELS = "models"
SHAPES = "shapes"
CONFIGS = OWN_CONFIGS
"""AITER's aiter/configs: its general list stands here, the tables of single models in model_configs below."""
MODEL_CONFIGS = f"{CONFIGS}/model_configs"
TABLE_FOLDERS = (MODEL_CONFIGS, TRITON)
"""Folders that tables are written into, and into those above them."""
GENERAL_UNTUNED = "untuned_fmoe.csv"

FILE_NAME = Rule(
    "MOE005", "file-name", Severity.ERROR,
    what="A YAML file stands where, or is named as, no declaration is read, or in the folder of another model.",
    why="Whoever wrote it believes that it counts. Names also become the names of deployments and records.",
    fix="Name it models/NAME.yaml or shapes/MODEL/NAME.yaml, with lower-case letters, digits, `.`, `_` and `-`.",
)  # fmt: skip

_Documents = Iterator[tuple[str, Document | None, list[Finding]]]
"""Documents of a folder by their paths below the root, each with what is wrong with it."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*\.yaml")
_FOLDER = re.compile(r"[a-z0-9][a-z0-9._-]*")


def csv_path(csv: str) -> str:
    """Where an untuned or tuned CSV of that name stands, below the repository's root."""
    if is_portable(csv):
        return f"{TRITON}/{csv}"
    general = csv in (GENERAL_UNTUNED, tuned_name(GENERAL_UNTUNED))
    return f"{CONFIGS}/{csv}" if general else f"{MODEL_CONFIGS}/{csv}"


def tuned_name(untuned: str) -> str:
    """The tuned CSV's name for an untuned one's: its last `untuned` becomes `tuned`."""
    before, _, after = untuned.rpartition("untuned")
    return f"{before}tuned{after}"


def load_declarations(root: Path) -> tuple[Declarations, list[Finding]]:
    """Everything that models/ and shapes/ below `root` declare, and all that is wrong with it.

    Nothing in the files makes it raise. Findings show paths relative to `root`. Where there are errors among them, the
    declarations are those of the sound parts.
    """
    findings: list[Finding] = []

    def read(folder: str) -> _Documents:
        return ((name, *load_document(path, name)) for path, name in _yaml_files(root, folder, findings))

    return _declare(read, findings)


def parse_declarations(contents: Mapping[str, bytes]) -> tuple[Declarations, list[Finding]]:
    """As `load_declarations`, from the contents of files by their paths below a root; what is no YAML is left out."""
    findings: list[Finding] = []

    def read(folder: str) -> _Documents:
        for name in sorted(name for name in contents if name.startswith(f"{folder}/") and _is_yaml(name)):
            if fault := _name_fault(name.split("/")[1:], folder):
                findings.append(Finding(FILE_NAME, Place(name), fault))
            else:
                yield name, *parse_document(contents[name], name)

    return _declare(read, findings)


def _declare(read: Callable[[str], _Documents], findings: list[Finding]) -> tuple[Declarations, list[Finding]]:
    """What the documents of both folders declare; `findings` has what kept others from being read."""
    models: dict[str, Model | None] = {}
    for name, document, wrong in read(MODELS):
        findings += wrong
        model_id = PurePosixPath(name).stem
        models[model_id] = None
        if document:
            models[model_id], wrong = read_model(model_id, document)
            findings += wrong
    shapes: list[Shape] = []
    for name, document, wrong in read(SHAPES):
        findings += wrong
        if document:
            shape, wrong = read_shape(name.removeprefix(f"{SHAPES}/").removesuffix(".yaml"), document)
            shapes.append(shape)
            findings += [*wrong, *_folder_fault(shape, name, models)]
    declarations, wrong = expand(models, shapes)
    return declarations, findings + wrong


def _folder_fault(shape: Shape, name: str, models: Mapping[str, Model | None]) -> Iterator[Finding]:
    """A shape of a known model in a folder of another name."""
    _, folder, file = name.split("/")
    if shape.model in models and shape.model != folder:
        message = f"the folder is `{folder}`, the model `{shape.model}`"
        remedy = f"Move it to {SHAPES}/{shape.model}/{file}, or name the model that the folder is of."
        yield Finding(FILE_NAME, shape.document.place("model"), message, remedy)


def _yaml_files(root: Path, folder: str, findings: list[Finding]) -> Iterator[tuple[Path, str]]:
    """The YAML files of a folder with their paths below the root, in order. Those that are not read become findings."""
    for path in _yaml_paths(root / folder):
        name = path.relative_to(root).as_posix()
        fault = "a folder that is a link is not read" if path.is_dir() else _name_fault(name.split("/")[1:], folder)
        if fault:
            findings.append(Finding(FILE_NAME, Place(name), fault))
        else:
            yield path, name


def _yaml_paths(folder: Path) -> Iterator[Path]:
    """What may be meant as YAML: files with its endings, and folders that are links, into which nothing looks."""
    if folder.is_symlink():
        yield folder
        return
    for directory, folders, files in os.walk(folder):
        folders.sort()
        yield from (path for name in folders if (path := Path(directory, name)).is_symlink())
        yield from (Path(directory, name) for name in sorted(files) if _is_yaml(name))


def _is_yaml(name: str) -> bool:
    """By its ending, as it is or as it may be meant."""
    return name.lower().endswith((".yaml", ".yml"))


def _name_fault(parts: list[str], folder: str) -> str:
    *folders, file = parts
    if not _NAME.fullmatch(file) or not all(_FOLDER.fullmatch(part) for part in folders):
        return f"`{'/'.join(parts)}` is not a name of lower-case letters, digits, `.`, `_` and `-` that ends in .yaml"
    if folder == MODELS and folders:
        return f"a model stands in {MODELS}/ itself, not in a folder below it"
    if folder == SHAPES and len(folders) != 1:
        return f"a shape stands in {SHAPES}/MODEL/, a folder of its model's name"
    return ""
