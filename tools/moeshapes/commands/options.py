"""Options that several commands share."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import click

from moeshapes.findings import FORMATS
from moeshapes.root import find_configs, find_shapes_root, find_tables_root
from moeshapes.runtime.version import CHANGES, KNOWN_UNTIL, Version


def _shapes_root(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path:
    return shapes_root(given)


def shapes_root(given: Path | None) -> Path:
    """The repository of shapes that is given, else the one that this directory is in. Raises UsageError."""
    root = given or find_shapes_root(Path.cwd())
    if root is None:
        raise click.UsageError("no models/ and shapes/ here or above: run it inside the repository, or give --root DIR")
    return root.absolute()


def _tables_root(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path:
    root = _optional_tables_root(context, parameter, given)
    if root is None:
        raise click.UsageError(
            "no models/ and shapes/, and no aiter/configs/, here or above: run it inside a checkout, or give --root DIR"
        )
    return root


def _optional_tables_root(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path | None:
    root = given or find_tables_root(Path.cwd())
    return root.absolute() if root else None


def _required_configs(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path:
    configs = _aiter_configs(context, parameter, given)
    if configs is None:
        raise click.UsageError("say where AITER's tables are, for example: --aiter ../aiter")
    return configs


def _aiter_configs(context: click.Context, parameter: click.Parameter, given: Path | None) -> Path | None:
    if given is None:
        return None
    configs = find_configs(given.absolute())
    if configs is None:
        raise click.BadParameter(
            f"{given} is no AITER checkout: it has no aiter/configs, and no tuned_fmoe.csv of its own"
        )
    return configs


def _version(context: click.Context, parameter: click.Parameter, given: str) -> Version:
    try:
        return Version(date.fromisoformat(given))
    except ValueError:
        raise click.BadParameter(f"`{given}` is no day: write it as YYYY-MM-DD, as {KNOWN_UNTIL}") from None


_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)
_ROOT_HELP = "The directory of models/ and shapes/; else found upwards."
_TABLES_ROOT_HELP = "The top of a repository of shapes, or of an AITER checkout; else found upwards."

root_option = click.option("--root", type=_DIRECTORY, callback=_shapes_root, help=_ROOT_HELP)
optional_root_option = click.option("--root", type=_DIRECTORY, help=_ROOT_HELP)
"""For a command whose subcommands need none: `shapes_root` makes it one."""
tables_root_option = click.option("--root", type=_DIRECTORY, callback=_tables_root, help=_TABLES_ROOT_HELP)
optional_tables_root_option = click.option(
    "--root", type=_DIRECTORY, callback=_optional_tables_root, help=_TABLES_ROOT_HELP
)
_AITER_HELP = "An AITER checkout, or its aiter/configs."

aiter_option = click.option(
    "--aiter", "configs", type=_DIRECTORY, callback=_required_configs, help=f"{_AITER_HELP} Required."
)
optional_aiter_option = click.option("--aiter", "configs", type=_DIRECTORY, callback=_aiter_configs, help=_AITER_HELP)
format_option = click.option(
    "--format", "style", type=click.Choice(FORMATS), default="text", show_default=True, help="How findings are printed."
)
baseline_option = click.option(
    "--baseline",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Findings that are known, as `lint --write-baseline` wrote them: only others are shown.",
)
aiter_of_option = click.option(
    "--aiter-of",
    "version",
    metavar="YYYY-MM-DD",
    default=str(KNOWN_UNTIL),
    callback=_version,
    show_default=True,
    help=f"AITER's main branch as of that day. Its rules are known from {CHANGES[0].since} on.",
)
