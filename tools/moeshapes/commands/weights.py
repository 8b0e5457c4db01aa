"""Options that have `verify` take a checkpoint's weights, and what it says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moeshapes.commands.extra import saying_what_to_install
from moeshapes.findings import Finding, printable
from moeshapes.verify.plan import Planned
from moeshapes.verify.run import Verified

if TYPE_CHECKING:
    from moeshapes.checkpoint.stored import StoredLayer

_Command = TypeVar("_Command", bound=Callable[..., Any])
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def weights_options(command: _Command) -> _Command:
    """`--weights DIR --layer NAME --rank N`."""
    directory = click.Path(exists=True, file_okay=False, path_type=Path)
    options = (
        click.option("--weights", type=directory, help="Take the weights of a layer of this checkpoint (safetensors)."),
        click.option("--layer", metavar="NAME", help="With --weights: which layer, as its tensors begin: layers.3."),
        click.option(
            "--rank", type=click.IntRange(min=0), default=0, show_default=True, help="With --weights: whose share."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def asked_layer(weights: Path | None, layer: str | None) -> tuple[StoredLayer | None, list[Finding]]:
    """The layer that the options ask for, None where they ask for none, and what is wrong with its checkpoint.

    Raises ClickException for an option that lacks another, and where safetensors is not installed.
    """
    if (weights is None) != (layer is None):
        raise click.UsageError("--weights DIR and --layer NAME go together: --weights ../checkpoint --layer layers.3")
    if weights is None or layer is None:
        return None, []
    with saying_what_to_install("verify"):
        from moeshapes.checkpoint.fault import CheckpointError
        from moeshapes.checkpoint.index import open_index
        from moeshapes.checkpoint.stored import stored_layer
    try:
        return stored_layer(open_index(weights.absolute()), layer), []
    except CheckpointError as error:
        return None, error.findings


def take_weights(planned: Sequence[Planned], stored: StoredLayer, rank: int) -> list[Planned]:
    """The plan with the layer's weights. Raises UsageError where nothing planned has its shape, or its rank."""
    from moeshapes.checkpoint.plan import ranks_by_use, shape_of, with_weights

    ranks = ranks_by_use(planned, stored)
    if not ranks:
        raise click.UsageError(printable(f"no row and no declared use has the shape of {shape_of(stored)}"))
    if rank >= max(ranks.values()):
        there = ", ".join(f"{use} has ranks 0 to {count - 1}" for use, count in sorted(ranks.items()))
        raise click.UsageError(printable(f"nothing that is asked for has a rank {rank}: {there}"))
    return with_weights(planned, stored, rank)


def weights_line(results: Sequence[Verified]) -> str:
    """What was read, by the job that read most; empty where no weights were."""
    read = [origin for result in results if (origin := _origin(result)) and not result.cached]
    if not read:
        return ""
    most = max(read, key=lambda origin: int(origin["bytes_read"]))
    anew = ", ".join(f"{name} ({count})" for name, count in most["quantised_anew"].items())
    of_tensors = (
        f"{_size(most['bytes_read'])} of {most['tensors_read']} tensors ({most['experts_read']} routed experts)"
    )
    of_all = f"{_size(most['header_bytes'])} of headers read, of a checkpoint of {_size(most['checkpoint_bytes'])}"
    codes = f"quantised anew: {anew}" if anew else "codes as stored"
    return printable(f"weights: {most['layer']} as rank {most['rank']} holds it: {of_tensors} and {of_all}; {codes}")


def _origin(result: Verified) -> Mapping[str, Any] | None:
    origin: Mapping[str, Any] | None = result.record["numerics"].get("weights") if result.record else None
    return origin


def _size(number: int) -> str:
    """Bytes in a unit that leaves three digits: `1.41 GiB`."""
    unit, name = next(((unit, name) for unit, name in _UNITS if number >= unit), (1, "bytes"))
    return f"{number / unit:.3g} {name}"
